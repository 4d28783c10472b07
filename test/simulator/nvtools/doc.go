// Package nvtools simulates programs of NVIDIA's driver: nvidia-cuda-mps-control (daemon and client),
// nvidia-cuda-mps-server, and the calls of nvidia-smi that Tranche makes. They run on the host and
// in containers, like the real ones, so their program (cmd/simulated-nvidia-tools) is linked to
// nothing.
//
// The daemon answers on the socket control in its pipe folder, in a format of its own. The client
// prints what the real one prints. Nothing is limited, because nothing is computed. tools.go selects
// the program by its name. daemon.go, commands.go and client.go simulate MPS, smi.go and reset.go
// nvidia-smi. machine.go finds the simulated machine that the program runs on.
package nvtools
