package plugin

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/uninstall"
)

// uninstallCommand is what the chart runs before Helm deletes anything.
func uninstallCommand(version string) *cobra.Command {
	var config uninstall.Config
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Fail while pods hold GPUs, otherwise delete the plugins, which clean up, and what the controller left",
		Long: "The chart runs this in a Job before `helm uninstall` deletes anything. It fails while pods hold GPUs, and lists them. " +
			"Otherwise it deletes the controller and the second scheduler, what they left in the cluster, and the plugins, which withdraw their GPUs when they end.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config.Namespace == "" {
				return errors.New("--system-namespace is not set, and neither is POD_NAMESPACE in the environment")
			}
			api, err := client.Config(kubeconfig, name+"/"+version)
			if err != nil {
				return err
			}
			limit(api)
			if config.Client, err = kubernetes.NewForConfig(api); err != nil {
				return err
			}
			if config.Ours, err = client.New(api); err != nil {
				return err
			}
			if config.Objects, err = metadata.NewForConfig(api); err != nil {
				return err
			}
			config.Out = cmd.OutOrStdout()
			return uninstall.Run(cmd.Context(), config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&config.Namespace, "system-namespace", os.Getenv("POD_NAMESPACE"), "namespace of Tranche; default: POD_NAMESPACE")
	flags.StringVar(&config.Release, "release", "tranche", "Helm release of the installation")
	flags.IntVar(&config.Revision, "revision", 1, "Helm revision of the installation, for messages")
	flags.StringVar(&config.DaemonSet, "daemonset", "tranche-kubelet-plugin", "DaemonSet of the plugins")
	flags.StringVar(&config.Controller, "controller", "", "Deployment of the controller; empty: none")
	flags.StringVar(&config.Scheduler, "scheduler", "", "Deployment and Lease of the second scheduler; empty: none")
	flags.BoolVar(&config.Force, "force", false, "continue although pods hold GPUs, GPUs are being changed, or nodes do not answer")
	flags.DurationVar(&config.Deadline, "deadline", 2*time.Minute, "time for the plugins to withdraw the GPUs and to end; 0: no limit")
	return cmd
}
