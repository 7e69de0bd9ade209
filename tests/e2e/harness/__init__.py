"""What the end-to-end tests are built on: real servers, a raw HTTP client, load and faults."""
