package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/pkg/controller/claimtemplates"
	"github.com/tranche-dev/tranche/pkg/controller/defragment"
	"github.com/tranche-dev/tranche/pkg/controller/gpurequests"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/controller/waiting"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

type config struct {
	metricsAddress, healthAddress string
	leaderElect                   bool
	systemNamespace               string
	profilesDirs                  []string
	translate                     []string
	gpuRequests                   string
	explain                       waiting.Options
	defragment                    defragment.Options
	options                       controller.Options
}

func defaults() controller.Options {
	return controller.Options{
		MaxUnavailable: "1",
		MaxFailures:    "0",
		Deadlines:      state.DefaultDeadlines(),
		Policy: v1beta1.SwitchPolicy{
			DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute},
			AfterDeadline: v1beta1.GiveUp,
			Reboot:        v1beta1.RebootNever,
		},
		PauseLabels:          controller.DefaultPauseLabels,
		MonitoringNamespaces: controller.DefaultMonitoringNamespaces,
		StartupTaint:         names.TaintStartup,
		Workers:              16,
	}
}

func defaultExplain() waiting.Options {
	return waiting.Options{After: time.Minute, PerSecond: 20}
}

func defaultDefragment() defragment.Options {
	return defragment.Options{MaxPods: defrag.DefaultMaxPods, PerHour: 10}
}

func addFlags(flags *pflag.FlagSet, c *config) {
	o := &c.options
	flags.StringVar(&c.metricsAddress, "metrics-address", ":8080", "address of /metrics; 0 disables it")
	flags.StringVar(&c.healthAddress, "health-address", ":8081", "address of /healthz and /readyz; 0 disables it")
	flags.BoolVar(&c.leaderElect, "leader-elect", true, "use leader election; disable it only for a single controller")
	flags.StringVar(&c.systemNamespace, "system-namespace", os.Getenv("POD_NAMESPACE"), "namespace of Tranche; default: POD_NAMESPACE, or that of the service account")
	flags.StringSliceVar(&c.profilesDirs, "profiles-dir", nil, "directories of PartitionProfiles to create, one file NAME.yaml each; the first directory with a name wins")
	flags.StringVar(&c.gpuRequests, "gpu-requests", "", "namespaces whose pods get requests for GPU memory and compute: "+gpurequests.Labeled+" (with the label "+names.LabelRequestGPUResources+"=true) or "+gpurequests.All+"; empty: none")
	flags.StringSliceVar(&c.translate, "translate", nil, "projects whose requests for parts of GPUs become claims in namespaces with the label "+names.LabelTranslate+": kai, hami, nos")
	flags.DurationVar(&c.explain.After, "explain-pending-after", c.explain.After, "time after which a pod that waits for its claims gets an event that says why; 0: never")
	flags.Float64Var(&c.explain.PerSecond, "explain-pending-max-calls-per-second", c.explain.PerSecond, "calls to the API server each second, at most, for these events")
	flags.DurationVar(&c.defragment.After, "defragment-after", c.defragment.After, "time after which other pods are moved if a pod that waits for its claims then fits; 0: never")
	flags.IntVar(&c.defragment.MaxPods, "defragment-max-pods", c.defragment.MaxPods, "pods that are moved for one pod, at most")
	flags.IntVar(&c.defragment.PerHour, "defragment-evictions-per-hour", c.defragment.PerHour, "pods that are evicted for this in an hour, at most, in the whole cluster")
	flags.StringVar(&o.MaxUnavailable, "max-unavailable", o.MaxUnavailable, "nodes without a PartitionPlan that may be switched at a time: a number, or a percentage of them, rounded down, at least 1; also the default of plans")
	flags.StringVar(&o.MaxFailures, "max-failures", o.MaxFailures, "nodes without a PartitionPlan that may fail with a profile before no other node gets it: a number, or a percentage of them, rounded down")
	flags.DurationVar(&o.Policy.DrainDeadline.Duration, "drain-deadline", o.Policy.DrainDeadline.Duration, "default of switch.drainDeadline in profiles")
	flags.Var((*afterDeadline)(&o.Policy.AfterDeadline), "after-deadline", "default of switch.afterDeadline in profiles: GiveUp or Force")
	flags.StringSliceVar(&o.PauseLabels, "pause-labels", o.PauseLabels, "node labels that start monitoring pods; during a switch, the value true becomes "+names.PausedValue)
	flags.StringSliceVar(&o.MonitoringNamespaces, "monitoring-namespaces", o.MonitoringNamespaces, "namespaces of the DaemonSets that the pause labels start; a switch waits for their pods to end")
	flags.StringVar(&o.StartupTaint, "startup-taint", o.StartupTaint, "key of the taint that nodes register with; it is removed when the desired profile is applied; empty: none")
	flags.Var((*rebootPolicy)(&o.Policy.Reboot), "reboot", "default of switch.reboot in profiles: Never or IfRequired")
	flags.Var((*followed)(&o.Labels.Projects), "follow-labels", "follow the node labels of another project: mig-parted, device-config-manager, kaiwo or nos, with =NAMESPACE/NAME/KEY for the ConfigMap of its configurations; without it, labels name PartitionProfiles. For device-plugin, =NAMESPACE/NAME is required: each key is a configuration. Can be repeated")
	flags.StringVar(&o.Labels.DefaultConfig, "device-plugin-default-config", "", "name of the configuration of NVIDIA's device plugin for nodes without its label")
	flags.IntVar(&o.Workers, "workers", o.Workers, "nodes that are reconciled in parallel")
	d := &o.Deadlines
	for _, f := range []struct {
		name, help string
		value      *time.Duration
	}{
		{"planning-deadline", "deadline of the state Planning", &d.Planning},
		{"tainted-deadline", "deadline of the state Tainted", &d.Tainted},
		{"force-deadline", "time for deleted pods to end after the drain deadline", &d.Force},
		{"applying-deadline", "deadline of the state Applying; a reload of AMD's driver takes minutes", &d.Applying},
		{"rebooting-deadline", "deadline of the state Rebooting", &d.Rebooting},
		{"verifying-deadline", "deadline of the state Verifying", &d.Verifying},
		{"rolling-back-deadline", "deadline of the state RollingBack", &d.RollingBack},
		{"monitoring-deadline", "time for paused monitoring pods to end; then GPUs are changed anyway", &d.Monitoring},
	} {
		flags.DurationVar(f.value, f.name, *f.value, f.help)
	}
}

func (c *config) check() error {
	if _, _, err := controller.ParseLimits(c.options.MaxUnavailable, c.options.MaxFailures); err != nil {
		return fmt.Errorf("--max-unavailable or --max-failures: %w", err)
	}
	if !slices.Contains([]string{"", gpurequests.Labeled, gpurequests.All}, c.gpuRequests) {
		return fmt.Errorf("--gpu-requests: %q is neither %s nor %s", c.gpuRequests, gpurequests.Labeled, gpurequests.All)
	}
	for _, project := range c.translate {
		if !slices.Contains(claimtemplates.Projects, project) {
			return fmt.Errorf("--translate: %q is none of %s", project, strings.Join(claimtemplates.Projects, ", "))
		}
	}
	if c.options.Workers < 1 {
		return errors.New("--workers is less than 1")
	}
	if c.explain.After < 0 || c.explain.PerSecond <= 0 {
		return errors.New("--explain-pending-after is less than 0, or --explain-pending-max-calls-per-second is not more than 0")
	}
	if n := len(c.options.PauseLabels); n > v1beta1.MaxPausedLabels {
		return fmt.Errorf("--pause-labels has %d labels, at most %d are possible", n, v1beta1.MaxPausedLabels)
	}
	// The GPUNode's status has as many places.
	if m := c.defragment; m.After < 0 || m.MaxPods < 1 || m.MaxPods > 16 || m.PerHour < 1 || m.PerHour > 1000 {
		return errors.New("--defragment-after is less than 0, --defragment-max-pods is not from 1 to 16, or --defragment-evictions-per-hour is not from 1 to 1000")
	}
	d := c.options.Deadlines
	for name, value := range map[string]time.Duration{
		"planning-deadline": d.Planning, "tainted-deadline": d.Tainted, "applying-deadline": d.Applying, "rebooting-deadline": d.Rebooting,
		"verifying-deadline": d.Verifying, "rolling-back-deadline": d.RollingBack, "drain-deadline": c.options.Policy.DrainDeadline.Duration,
	} {
		if value <= 0 {
			return fmt.Errorf("--%s is %s, it must be more than 0", name, value)
		}
	}
	for name, value := range map[string]time.Duration{"force-deadline": d.Force, "monitoring-deadline": d.Monitoring} {
		if value < 0 {
			return fmt.Errorf("--%s is %s, it must not be less than 0", name, value)
		}
	}
	return nil
}

// followed is a flag that adds a project whose labels are followed.
type followed map[adopt.Project]adopt.ConfigMap

// String implements pflag.Value.
func (f *followed) String() string { return "" }

// Set implements pflag.Value.
func (f *followed) Set(s string) error {
	name, where, given := strings.Cut(s, "=")
	project := adopt.Project(name)
	if !slices.Contains(adopt.Projects(), project) {
		return fmt.Errorf("%q is not one of %q", name, adopt.Projects())
	}
	var c adopt.ConfigMap
	parts := append(strings.Split(where, "/"), "")
	switch {
	case project == adopt.DevicePlugin:
		if len(parts) != 3 || slices.Contains(parts[:2], "") {
			return fmt.Errorf("%q is not NAMESPACE/NAME of a ConfigMap", where)
		}
		c = adopt.ConfigMap{Namespace: parts[0], Name: parts[1]}
	case given:
		if len(parts) != 4 || slices.Contains(parts[:3], "") {
			return fmt.Errorf("%q is not NAMESPACE/NAME/KEY of a ConfigMap", where)
		}
		c = adopt.ConfigMap{Namespace: parts[0], Name: parts[1], Key: parts[2]}
	}
	if *f == nil {
		*f = followed{}
	}
	(*f)[project] = c
	return nil
}

// Type implements pflag.Value.
func (f *followed) Type() string { return "project" }

// rebootPolicy is a flag that takes Never or IfRequired.
type rebootPolicy v1beta1.Reboot

// String implements pflag.Value.
func (r *rebootPolicy) String() string { return string(*r) }

// Set implements pflag.Value.
func (r *rebootPolicy) Set(s string) error {
	switch v1beta1.Reboot(s) {
	case v1beta1.RebootNever, v1beta1.RebootIfRequired:
		*r = rebootPolicy(s)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", s, v1beta1.RebootNever, v1beta1.RebootIfRequired)
}

// Type implements pflag.Value.
func (r *rebootPolicy) Type() string { return "policy" }

// afterDeadline is a flag that takes GiveUp or Force.
type afterDeadline v1beta1.AfterDeadline

// String implements pflag.Value.
func (a *afterDeadline) String() string { return string(*a) }

// Set implements pflag.Value.
func (a *afterDeadline) Set(s string) error {
	switch v1beta1.AfterDeadline(s) {
	case v1beta1.GiveUp, v1beta1.Force:
		*a = afterDeadline(s)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", s, v1beta1.GiveUp, v1beta1.Force)
}

// Type implements pflag.Value.
func (a *afterDeadline) Type() string { return "policy" }
