// Command tranche-controller brings nodes to the partition profiles that
// administrators want.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/controller/defragment"
	"github.com/tranche-dev/tranche/pkg/controller/waiting"
	"github.com/tranche-dev/tranche/pkg/profile/provision"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := config{options: defaults(), explain: defaultExplain(), defragment: defaultDefragment()}
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:           "tranche-controller",
		Short:         "The controller of Tranche, which switches nodes to their partition profiles",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			api, err := connect(c.kubeconfig)
			if err != nil {
				return err
			}
			klog.FromContext(cmd.Context()).Info("Starting", "version", version)
			return run(cmd.Context(), api, &c)
		},
	}
	logsapi.AddFlags(logging, cmd.Flags())
	addFlags(cmd.Flags(), &c)
	return cmd
}

// run works until ctx ends or another controller leads.
func run(ctx context.Context, api *rest.Config, c *config) error {
	ctrl.SetLogger(klog.Background())
	scheme, err := controller.NewScheme()
	if err != nil {
		return fmt.Errorf("put together the kinds of objects: %w", err)
	}
	// Deadlines are those of the API server's clock, which all controllers see alike.
	clock := &controller.ServerClock{}
	api.Wrap(clock.Wrap)
	c.options.Clock = clock
	caches := c.options.CacheOptions()
	if len(c.translate) > 0 {
		maps.Copy(caches.ByObject, claimtemplates.CacheObjects())
	}
	if c.explain.After > 0 {
		maps.Copy(caches.ByObject, waiting.CacheObjects())
	}
	mgr, err := ctrl.NewManager(api, manager.Options{
		Scheme:                  scheme,
		Cache:                   caches,
		Metrics:                 metricsserver.Options{BindAddress: c.metricsAddress},
		HealthProbeBindAddress:  c.healthAddress,
		LeaderElection:          c.leaderElect,
		LeaderElectionID:        v1alpha1.ControllerName,
		LeaderElectionNamespace: c.leaseNamespace,
		// The program ends when the manager does, so the next leader need not wait for
		// the lease to run out.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("prepare the controller: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced(mgr))); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	c.options.Registry = metrics.Registry
	if err := controller.Setup(ctx, mgr, c.options); err != nil {
		return err
	}
	if len(c.translate) > 0 {
		if err := claimtemplates.Setup(mgr, c.translate); err != nil {
			return fmt.Errorf("prepare the creation of ResourceClaimTemplates: %w", err)
		}
	}
	if c.explain.After > 0 {
		c.explain.Clock, c.explain.Registry = clock, metrics.Registry
		if err := waiting.Setup(mgr, c.explain); err != nil {
			return fmt.Errorf("prepare the events on pods that wait: %w", err)
		}
	}
	if c.defragment.After > 0 {
		c.defragment.Clock, c.defragment.Registry = clock, metrics.Registry
		if err := defragment.Setup(mgr, c.defragment); err != nil {
			return fmt.Errorf("prepare the moving of pods: %w", err)
		}
	}
	if len(c.profilesDirs) > 0 {
		if err := mgr.Add(&provision.Keeper{Client: mgr.GetClient(), Dirs: c.profilesDirs}); err != nil {
			return fmt.Errorf("keep profiles: %w", err)
		}
	}
	if c.webAddress != "" {
		if err := mgr.Add(&webPage{api: api, address: c.webAddress, certDir: c.webCertDir, namespace: c.leaseNamespace}); err != nil {
			return fmt.Errorf("add the web page: %w", err)
		}
	}
	return mgr.Start(ctx)
}

// synced tells whether the caches have been filled: a controller that waits to lead has
// them, too, so that it can go on at once.
func synced(mgr manager.Manager) healthz.Checker {
	return func(r *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(r.Context()) {
			return errors.New("the caches are being filled")
		}
		return nil
	}
}

// connect says how to reach the API server. Calls are not limited by the second, which
// would make a thousand nodes take many times as long: a worker has one call under way
// at a time, and the API server shares itself out among its clients (priority and
// fairness).
func connect(kubeconfig string) (*rest.Config, error) {
	api, err := client.Config(kubeconfig, "tranche-controller/"+version)
	if err != nil {
		return nil, err
	}
	api.QPS = -1
	return api, nil
}
