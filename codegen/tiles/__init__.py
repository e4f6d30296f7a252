"""What fast kernels share: the register tile, panels, blocked images and epilogues."""
