"""What the end-to-end tests stand on: real servers, a raw HTTP client, load and faults."""
