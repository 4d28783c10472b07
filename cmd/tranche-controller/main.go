// Command tranche-controller brings nodes to the partition profiles that
// administrators want.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/cmd/internal/daemon"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/controller/defragment"
	"github.com/tranche-dev/tranche/pkg/controller/gpurequests"
	"github.com/tranche-dev/tranche/pkg/controller/waiting"
	"github.com/tranche-dev/tranche/pkg/serve"
)

// version is set when the program is linked.
var version = "dev"

func main() { daemon.Main(command()) }

func command() *cobra.Command {
	c := config{options: defaults(), explain: defaultExplain(), defragment: defaultDefragment()}
	return daemon.Program{
		Name: names.ControllerName, Short: "The controller of Tranche, which switches nodes to their partition profiles", Version: version,
		Flags: func(flags *pflag.FlagSet) { addFlags(flags, &c) },
		Check: c.check,
		Run: func(ctx context.Context, api *rest.Config) error {
			// Calls are not limited by the second, which would make a thousand nodes take many
			// times as long: a worker has one call under way at a time, and the API server shares
			// itself out among its clients (priority and fairness).
			api.QPS = -1
			return run(ctx, api, &c)
		},
	}.Command()
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
	if c.gpuRequests != "" {
		gpurequests.AddToCache(caches.ByObject)
	}
	if c.explain.After > 0 {
		maps.Copy(caches.ByObject, waiting.CacheObjects())
	}
	mgr, err := ctrl.NewManager(api, manager.Options{
		Scheme:                  scheme,
		Cache:                   caches,
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // listen has deadlines and limits
		LeaderElection:          c.leaderElect,
		LeaderElectionID:        names.ControllerName,
		LeaderElectionNamespace: c.systemNamespace,
		// The program ends when the manager does, so the next leader need not wait for
		// the lease to run out.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("prepare the controller: %w", err)
	}
	scraped := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{})
	if err := errors.Join(listen(ctx, mgr, "metrics", c.metricsAddress, scraped), listen(ctx, mgr, "health", c.healthAddress, nil)); err != nil {
		return err
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
	if c.gpuRequests != "" {
		if err := gpurequests.Setup(mgr, c.gpuRequests == gpurequests.All); err != nil {
			return fmt.Errorf("prepare the GPUResourceMaps: %w", err)
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
		if err := mgr.Add(&controller.ChartProfiles{Client: mgr.GetClient(), Dirs: c.profilesDirs}); err != nil {
			return fmt.Errorf("keep profiles: %w", err)
		}
	}
	return mgr.Start(ctx)
}

// listen adds a server of health checks, and of metrics if there are any, to the manager, which
// starts it before it fills the caches.
func listen(ctx context.Context, mgr manager.Manager, name, address string, scraped http.Handler) error {
	if address == "0" {
		return nil
	}
	l, err := serve.Listen(ctx, "tcp", address, serve.Few)
	if err != nil {
		return fmt.Errorf("serve %s: %w", name, err)
	}
	server := serve.New(serve.Endpoints(scraped, func(ctx context.Context) error { return synced(ctx, mgr) }))
	return mgr.Add(&manager.Server{Name: name, Server: server, Listener: l, ShutdownTimeout: ptr.To(time.Second)})
}

// synced tells whether the caches have been filled: a controller that waits to lead has
// them, too, so that it can go on at once.
func synced(ctx context.Context, mgr manager.Manager) error {
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are being filled")
	}
	return nil
}
