"""`doctor fix`: plans, shows, applies, proves and undoes what playbooks say."""
