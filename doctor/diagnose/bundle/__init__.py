"""One archive with all that a vendor's support asks for: collected on the hosts, without secrets, with its contents."""
