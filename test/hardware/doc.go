// Package hardware is the checks for a machine with real NVIDIA cards, in one
// test binary to copy there (make hardware-test). It reads the cards and changes
// nothing on them: all that it holds of the driver is the interface reader, which
// has no call that creates, destroys or switches. Shares are set up by pkg/share
// without what would set the cards for them: what is left are MPS daemons.
//
// The same checks run over the simulator in `make test`, so they are exercised
// where there is no card.
package hardware
