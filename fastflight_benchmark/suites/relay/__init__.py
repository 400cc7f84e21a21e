"""The parts of the suite `relay`: a seeder, relays, and a client, each in a process of its own."""
