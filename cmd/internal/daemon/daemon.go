// Package daemon is what the commands of the programs in the cluster share: flags of logging and
// of the API server, and their end by a signal.
//
// It may import pkg/client.
package daemon

import (
	"context"
	"crypto/fips140"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/client"
)

// Program is a program that runs in the cluster until it is told to end.
type Program struct {
	Name, Short, Version string
	// Flags adds the program's own flags.
	Flags func(*pflag.FlagSet)
	// Check refuses flags that cannot work.
	Check func() error
	// Run works until ctx ends. How often it may call the API server is for it to say.
	Run func(ctx context.Context, api *rest.Config) error
}

// Command is the command of the program.
func (p Program) Command() *cobra.Command {
	kubeconfig, logging := "", logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:           p.Name,
		Short:         p.Short,
		Version:       p.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.Check(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			api, err := client.Config(kubeconfig, p.Name+"/"+p.Version)
			if err != nil {
				return err
			}
			klog.FromContext(cmd.Context()).Info("Starting", "program", p.Name, "version", p.Version, "fips140", fips140.Enabled())
			return p.Run(cmd.Context(), api)
		},
	}
	flags := cmd.Flags()
	logsapi.AddFlags(logging, flags)
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	p.Flags(flags)
	return cmd
}

// Main runs a command until a signal ends it, and ends the process.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cmd.ExecuteContext(ctx)
	stop()
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
