"""The servers that fastflight is compared with, each in a process of its own, and the tools that they need."""
