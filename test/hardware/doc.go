// Package hardware is the checks for a machine with real NVIDIA GPUs, in one
// test binary to copy there (make hardware-test). It reads the GPUs and changes
// nothing on them: all that it holds of the driver is the interface reader, which
// has no call that creates, destroys or switches. Shares are set up by pkg/share
// without what would set the GPUs for them: what is left are MPS daemons.
//
// The same checks run over the simulator in `make test`, so they are exercised
// where there is no GPU.
package hardware
