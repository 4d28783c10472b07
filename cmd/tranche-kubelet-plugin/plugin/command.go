package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/cmd/internal/daemon"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/node"
)

// gcPercent makes the collector run when the heap has grown by a quarter, not by all:
// the plugin runs on every node, and its own memory is what it costs there. It is idle
// most of the time, and of some 6 MB of heap a round takes 10 ms of a processor.
const gcPercent = 25

// name is the program's.
const name = "tranche-kubelet-plugin"

// Main runs the program, of a version, and ends the process.
func Main(version string) {
	// Not a command like the others: this process is on its way to being another
	// program, and needs nothing of what they need.
	if len(os.Args) > 1 && os.Args[1] == mps.LaunchCommand {
		os.Exit(mps.Launch(os.Args[2:]))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	daemon.Main(command(version))
}

func command(version string) *cobra.Command {
	var o Options
	o.Version = version
	cmd := daemon.Program{
		Name: name, Short: "The kubelet plugin of Tranche, a DRA driver that partitions GPUs", Version: version,
		Flags: func(flags *pflag.FlagSet) { addFlags(flags, &o) },
		Check: func() error {
			if o.NodeName == "" {
				return errors.New("--node-name is not set, and neither is NODE_NAME in the environment")
			}
			return nil
		},
		Run: func(ctx context.Context, api *rest.Config) error { return runPlugin(ctx, api, &o) },
	}.Command()
	cmd.AddCommand(hardwareCommand(), uninstallCommand(version), devicesCommand())
	return cmd
}

// runPlugin works until ctx ends.
func runPlugin(ctx context.Context, api *rest.Config, o *Options) error {
	limit(api)
	kube, err := kubernetes.NewForConfig(api)
	if err != nil {
		return err
	}
	ours, err := client.New(api)
	if err != nil {
		return err
	}
	o.GPUNodes = ours.GPUNodes()
	if o.MemoryModes {
		if o.Dynamic, err = dynamic.NewForConfig(api); err != nil {
			return err
		}
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.Background(), "node", o.NodeName))
	o.Machine, o.CgroupRoot = Host(o), filepath.Join("/", o.machineRoot(), "sys/fs/cgroup")
	return node.Run(ctx, &o.Config, kube)
}

// hardwareCommand prints what the vendors' tools cannot tell of the node's GPUs.
func hardwareCommand() *cobra.Command {
	var config node.Config
	var output string
	cmd := &cobra.Command{
		Use:   "hardware",
		Short: "Print who holds the GPUs of this node and their partitions, and why a mode cannot change",
		Example: "  kubectl -n tranche-system get pods -o wide     # which plugin is on the node\n" +
			"  kubectl -n tranche-system exec POD -- " + name + " hardware",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output is %q, it can be json", output)
			}
			return node.PrintReport(cmd.Context(), config.DataDir(), cmd.OutOrStdout(), output == "json")
		},
	}
	addKubeletDir(cmd.Flags(), &config)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json; empty: text")
	return cmd
}

// limit limits the calls to the API server. There is room for a batch of claims: each takes one
// read.
func limit(api *rest.Config) { api.QPS, api.Burst = 50, 100 }
