package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// config is what flags say.
type config struct {
	kubeconfig                    string
	metricsAddress, healthAddress string
	leaderElect                   bool
	leaseNamespace                string
	profilesDirs                  []string
	options                       controller.Options
}

func defaults() controller.Options {
	return controller.Options{
		MaxUnavailable: "1",
		Deadlines:      state.DefaultDeadlines(),
		Policy: v1alpha1.SwitchPolicy{
			DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute},
			AfterDeadline: v1alpha1.GiveUp,
		},
		PauseLabels:      controller.DefaultPauseLabels,
		ClientNamespaces: controller.DefaultClientNamespaces,
		StartupTaint:     v1alpha1.TaintStartup,
		Workers:          16,
	}
}

func addFlags(flags *pflag.FlagSet, c *config) {
	o := &c.options
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&c.metricsAddress, "metrics-address", ":8080", "address of /metrics; 0 disables it")
	flags.StringVar(&c.healthAddress, "health-address", ":8081", "address of /healthz and /readyz; 0 disables it")
	flags.BoolVar(&c.leaderElect, "leader-elect", true, "use leader election; disable it only for a single controller")
	flags.StringVar(&c.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the leader election lease; default: POD_NAMESPACE, or that of the service account")
	flags.StringSliceVar(&c.profilesDirs, "profiles-dir", nil, "directories of PartitionProfiles to create, one file NAME.yaml each; the first directory with a name wins")
	flags.StringVar(&o.MaxUnavailable, "max-unavailable", o.MaxUnavailable, "nodes that may be in a disruptive switch at a time: a number, or a percentage of the nodes with GPUs, rounded down, at least 1")
	flags.DurationVar(&o.Policy.DrainDeadline.Duration, "drain-deadline", o.Policy.DrainDeadline.Duration, "default of switch.drainDeadline in profiles")
	flags.Var((*afterDeadline)(&o.Policy.AfterDeadline), "after-deadline", "default of switch.afterDeadline in profiles: GiveUp or Force")
	flags.StringSliceVar(&o.PauseLabels, "pause-labels", o.PauseLabels, "node labels that start GPU clients; during a switch, the value true becomes "+v1alpha1.PausedValue)
	flags.StringSliceVar(&o.ClientNamespaces, "client-namespaces", o.ClientNamespaces, "namespaces of the DaemonSets that the pause labels start; a switch waits for their pods to end")
	flags.StringVar(&o.StartupTaint, "startup-taint", o.StartupTaint, "key of the taint that nodes register with; it is removed when the desired profile is applied; empty: none")
	flags.IntVar(&o.Workers, "workers", o.Workers, "nodes that are reconciled in parallel")
	d := &o.Deadlines
	for _, f := range []struct {
		name, help string
		value      *time.Duration
	}{
		{"planning-deadline", "deadline of the state Planning", &d.Planning},
		{"taint-deadline", "deadline of the state Tainted", &d.Tainted},
		{"force-deadline", "time for deleted pods to end after the drain deadline", &d.Force},
		{"apply-deadline", "deadline of the state Applying; a reload of AMD's driver takes minutes", &d.Applying},
		{"reboot-deadline", "deadline of the state Rebooting", &d.Rebooting},
		{"verify-deadline", "deadline of the state Verifying", &d.Verifying},
		{"roll-back-deadline", "deadline of the state RollingBack", &d.RollingBack},
		{"client-deadline", "time for paused clients to end; then GPUs are changed anyway", &d.Clients},
	} {
		flags.DurationVar(f.value, f.name, *f.value, f.help)
	}
}

// check refuses what cannot work.
func (c *config) check() error {
	if _, err := controller.NewBudget(intstr.Parse(c.options.MaxUnavailable), nil); err != nil {
		return fmt.Errorf("--max-unavailable: %w", err)
	}
	if c.options.Workers < 1 {
		return errors.New("--workers is less than 1")
	}
	d := c.options.Deadlines
	for name, value := range map[string]time.Duration{
		"planning-deadline": d.Planning, "taint-deadline": d.Tainted, "apply-deadline": d.Applying, "reboot-deadline": d.Rebooting,
		"verify-deadline": d.Verifying, "roll-back-deadline": d.RollingBack, "drain-deadline": c.options.Policy.DrainDeadline.Duration,
	} {
		if value <= 0 {
			return fmt.Errorf("--%s is %s, it must be more than 0", name, value)
		}
	}
	for name, value := range map[string]time.Duration{"force-deadline": d.Force, "client-deadline": d.Clients} {
		if value < 0 {
			return fmt.Errorf("--%s is %s, it must not be less than 0", name, value)
		}
	}
	return nil
}

// afterDeadline is a flag that takes GiveUp or Force.
type afterDeadline v1alpha1.AfterDeadline

// String implements pflag.Value.
func (a *afterDeadline) String() string { return string(*a) }

// Set implements pflag.Value.
func (a *afterDeadline) Set(s string) error {
	switch v1alpha1.AfterDeadline(s) {
	case v1alpha1.GiveUp, v1alpha1.Force:
		*a = afterDeadline(s)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", s, v1alpha1.GiveUp, v1alpha1.Force)
}

// Type implements pflag.Value.
func (a *afterDeadline) Type() string { return "policy" }
