"""The part of a network test that works on the controller: sessions to the hosts, and its phases."""
