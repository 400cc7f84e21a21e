"""What fastflight is compared with: servers, each in a process of its own, and the tools that it takes."""
