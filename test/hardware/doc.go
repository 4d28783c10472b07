// Package hardware is the checks for a machine with real GPUs, in one test binary to
// copy there (make hardware-test). Unless it is told to partition a GPU, it changes
// nothing on GPUs: all that it holds of the drivers is the interface reader, which has
// no call that creates, destroys or switches. Shares are set up by pkg/share without
// what would set the GPUs for them: what is left are MPS daemons. Pods (make
// hardware-kit) claim what needs no change.
//
// The same checks run over the simulator in `make test`, so they are exercised where
// there is no GPU.
package hardware
