package lab

import (
	"context"
	"maps"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/controller/defragment"
	"github.com/tranche-dev/tranche/pkg/controller/gpurequests"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/controller/waiting"
)

// ControllerOptions are the settings of the controller. Parts with the zero value do not run.
type ControllerOptions struct {
	controller.Options
	Explain    waiting.Options
	Defragment defragment.Options
	// Translate are the projects whose pods get claim templates.
	Translate []string
	// GPURequests are the namespaces whose pods get requests for GPU memory and compute.
	GPURequests string
}

// DefaultController are those that the chart has, without the parts that take time to speak up.
func DefaultController() ControllerOptions {
	return ControllerOptions{GPURequests: gpurequests.Labeled, Options: controller.Options{
		MaxUnavailable: "1", Deadlines: state.DefaultDeadlines(), StartupTaint: names.TaintStartup,
		PauseLabels: controller.DefaultPauseLabels, MonitoringNamespaces: controller.DefaultMonitoringNamespaces,
	}}
}

// StartController runs the controller until stop is called, with the rights that the chart gives
// it. stop returns the error that it ended with.
func (c *Cluster) StartController(ctx context.Context, o ControllerOptions) (stop func() error, err error) {
	scheme, err := controller.NewScheme()
	if err != nil {
		return nil, err
	}
	clock := &controller.ServerClock{}
	config := c.asController()
	config.Wrap(clock.Wrap)
	o.Clock = clock
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	caches := o.CacheOptions()
	if len(o.Translate) > 0 {
		maps.Copy(caches.ByObject, claimtemplates.CacheObjects())
	}
	if o.GPURequests != "" {
		gpurequests.AddToCache(caches.ByObject)
	}
	if o.Explain.After > 0 {
		maps.Copy(caches.ByObject, waiting.CacheObjects())
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: caches, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // each test has a controller
	})
	if err != nil {
		return nil, err
	}
	if err := o.setup(ctx, mgr); err != nil {
		return nil, err
	}
	dirs, err := c.mountProfiles(ctx)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(&controller.ChartProfiles{Client: mgr.GetClient(), Dirs: dirs}); err != nil {
		return nil, err
	}
	return run("the controller", mgr.Start).stop, nil //nolint:contextcheck // it ends when it is stopped
}

func (o *ControllerOptions) setup(ctx context.Context, mgr manager.Manager) error {
	if err := controller.Setup(ctx, mgr, o.Options); err != nil {
		return err
	}
	if len(o.Translate) > 0 {
		if err := claimtemplates.Setup(mgr, o.Translate); err != nil {
			return err
		}
	}
	if o.GPURequests != "" {
		if err := gpurequests.Setup(mgr, o.GPURequests == gpurequests.All); err != nil {
			return err
		}
	}
	if o.Explain.After > 0 {
		o.Explain.Clock, o.Explain.Registry = o.Clock, prometheus.NewRegistry()
		if err := waiting.Setup(mgr, o.Explain); err != nil {
			return err
		}
	}
	if o.Defragment.After > 0 {
		o.Defragment.Clock, o.Defragment.Registry = o.Clock, prometheus.NewRegistry()
		return defragment.Setup(mgr, o.Defragment)
	}
	return nil
}

// mountProfiles writes the ConfigMaps with the chart's profiles as files, and returns the folders.
func (c *Cluster) mountProfiles(ctx context.Context) (dirs []string, err error) {
	for _, name := range []string{"tranche-profiles", "tranche-profile-catalog"} {
		m, err := c.Core.CoreV1().ConfigMaps(Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		for file, text := range m.Data {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}
