"""What a user configures and stores: doctor.toml, waivers, skipped checks, state paths, atomic writes."""
