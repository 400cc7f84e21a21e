"""The parts of the campaign `cluster`: its boards, its stage, its faults and the work of its clients."""
