#include "access/caller.h"

const char *access_name(enum access access)
{
	static const char *const names[] = {
		[ACCESS_EXTERNAL] = "external",
		[ACCESS_INTERNAL] = "internal",
		[ACCESS_ADMIN] = "admin",
		[ACCESS_PUBLIC] = "public",
		[ACCESS_USER] = "user",
		[ACCESS_OWNER] = "owner",
		[ACCESS_OWNER_STREAM] = "owner",
	};

	return names[access];
}
