package nvtools

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// The programs, by the names of NVIDIA's.
const (
	ControlProgram = "nvidia-cuda-mps-control"
	ServerProgram  = "nvidia-cuda-mps-server"
	SMIProgram     = "nvidia-smi"
)

// Programs lists them.
func Programs() []string { return []string{ControlProgram, ServerProgram, SMIProgram} }

// streams are a program's.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// Main is the program that args[0] names. It returns what the process ends with.
func Main(args []string) (exitCode int) {
	std := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	switch name := filepath.Base(args[0]); name {
	case ControlProgram:
		return control(args[1:], std)
	case ServerProgram:
		return serve()
	case SMIProgram:
		return smi(ownMachine(), args[1:], os.Environ(), std)
	default:
		fmt.Fprintf(std.err, "%s: run it by the name of one of %v\n", name, Programs())
		return 2
	}
}

// serve is the server, which does nothing, and ends when it is told to.
func serve() int {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	return 0
}
