#include "flow/write.h"

#include <assert.h>
#include <openssl/evp.h>

void write_answer(struct write *write, struct answer answer)
{
	assert(write->fate == WRITE_OPEN);
	assert(answer.http_status != 0);
	write->command.answer = answer;
	write->fate = WRITE_ANSWERED;
}

/* Each part goes in with its length before it, so that no two requests look alike joined. */
static void fingerprint(const struct slice request[3], unsigned char out[FINGERPRINT_SIZE])
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	int ok = digest != NULL && EVP_DigestInit_ex(digest, EVP_sha256(), NULL);

	for (int i = 0; i < 3; i++) {
		uint64_t len = request[i].len;

		ok = ok && EVP_DigestUpdate(digest, &len, sizeof(len)) &&
		     EVP_DigestUpdate(digest, request[i].data, request[i].len);
	}
	ok = ok && EVP_DigestFinal_ex(digest, out, NULL);
	assert(ok);
	EVP_MD_CTX_free(digest);
}

void write_set_key(struct write *write, struct arena *arena, struct slice scope, struct slice key,
	const struct slice request[3])
{
	write->key = arena_new(arena, struct key_record);
	write->key->scope = scope;
	write->key->key = key;
	fingerprint(request, write->key->fingerprint);
}

bool write_answer_is_kept(const struct answer *answer)
{
	int status = answer->http_status;

	return (status >= 200 && status < 300) || status == 404 || status == 409 || status == 412;
}
