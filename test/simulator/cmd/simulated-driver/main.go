// Command simulated-driver installs the drivers of a simulated machine on a node: files, device nodes
// and libraries of NVIDIA's, and a file system with those of AMD's kernel, which is there as long as
// this program runs. Programs that are written for real GPUs find them below the machine's root.
// `simulated-driver ready` ends with an error until that is so.
//
// It is also the programs of these drivers and of the machine, by whose names it is installed.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func main() {
	if exitCode, ok := byName(os.Args); ok {
		os.Exit(exitCode)
	}
	runtime.GOMAXPROCS(1) // what it answers takes less time than to wake another thread
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simulated-driver:", err)
		os.Exit(1)
	}
}

// byName is the program that args[0] names, if it is one of a driver's or of the machine.
func byName(args []string) (exitCode int, ok bool) {
	switch name := filepath.Base(args[0]); {
	case slices.Contains(nvtools.Programs(), name):
		return nvtools.Main(args), true
	case slices.Contains(machinePrograms, name):
		return machineProgram(name, args[1:]), true
	}
	return 0, false
}

func command(ctx context.Context, args []string) error {
	var o options
	flags := pflag.NewFlagSet("simulated-driver", pflag.ContinueOnError)
	flags.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of the node; default: NODE_NAME")
	flags.StringVar(&o.inventory, "inventory", "", "inventory of simulated GPUs of nodes that --nodes does not name; empty: none")
	flags.StringToStringVar(&o.nodes, "nodes", nil, "inventories of single nodes (node-a=h100x8,node-b=l4x4)")
	flags.StringVar(&o.inventories, "inventories", "", "directory with inventories of your own")
	flags.StringVar(&o.root, "root", "/run/tranche/simulate", "root directory of the simulated machine, the same path here and on the host")
	flags.StringVar(&o.libraries, "libraries", "/usr/lib/simulated-nvml", "directory with <branch>/libnvidia-ml.so.1")
	flags.StringVar(&o.library, "library", "", "branch of NVIDIA's driver whose library is installed; empty: that of the inventory's driver")
	flags.StringVar(&o.program, "program", "/proc/self/exe", "this program, to be installed")
	flags.StringVar(&o.pluginDir, "plugin-dir", "", "directory of the kubelet plugin on this node: if it is gone when this program ends, the machine is removed; empty: the machine stays")
	flags.StringVar(&o.instance, "instance", cmp.Or(os.Getenv("POD_UID"), strconv.Itoa(os.Getpid())), "name of this instance; default: POD_UID, or the process id")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch words := strings.Join(flags.Args(), " "); words {
	case "":
	case "ready":
		return o.ready()
	default:
		return fmt.Errorf("unknown arguments: %s", words)
	}
	m, err := o.install()
	if err != nil {
		return err
	}
	fmt.Println(m)
	<-ctx.Done()
	return m.close()
}

// ready fails until the instance of this program serves the machine.
func (o *options) ready() error {
	serves, err := o.serves()
	if err == nil && !serves {
		err = fmt.Errorf("%s does not name instance %s yet", o.servedBy(), o.instance)
	}
	return err
}
