"""One change, policy or selection patch over many connections, in waves, with gates between them."""
