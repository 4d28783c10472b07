// Package nvtools stands in for programs of NVIDIA's driver:
// nvidia-cuda-mps-control, the daemon and its client, nvidia-cuda-mps-server, and
// of nvidia-smi what Tranche calls. They run where the real ones would, on the host
// and in containers, so the program that has them (cmd/simulated-nvidia-tools) is
// linked to nothing.
//
// The daemon answers over a socket control in its pipe folder, in words of its own;
// what the client prints is what the real one does. Nothing is limited by it, since
// nothing is computed. tools.go chooses the program by the name it is run by;
// daemon.go, commands.go and client.go are MPS, smi.go and reset.go are nvidia-smi,
// and machine.go finds the simulated machine around the program.
//
// Imports: pkg/simulate/disk, pkg/simulate/nvstate.
package nvtools
