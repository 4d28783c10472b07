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
	"github.com/tranche-dev/tranche/pkg/switchover"
)

// config is what flags say.
type config struct {
	kubeconfig                    string
	metricsAddress, healthAddress string
	leaderElect                   bool
	leaseNamespace                string
	profilesDirs                  []string
	options                       switchover.Options
}

func defaults() switchover.Options {
	return switchover.Options{
		MaxUnavailable: "1",
		Deadlines:      switchover.DefaultDeadlines(),
		Policy: v1alpha1.SwitchPolicy{
			DrainDeadline: &metav1.Duration{Duration: 10 * time.Minute},
			AfterDeadline: v1alpha1.GiveUp,
		},
		PauseLabels:      switchover.DefaultPauseLabels,
		ClientNamespaces: switchover.DefaultClientNamespaces,
		Workers:          16,
	}
}

func addFlags(flags *pflag.FlagSet, c *config) {
	o := &c.options
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the pod's service account")
	flags.StringVar(&c.metricsAddress, "metrics-address", ":8080", "address of /metrics; 0: none")
	flags.StringVar(&c.healthAddress, "health-address", ":8081", "address of /healthz and /readyz; 0: none")
	flags.BoolVar(&c.leaderElect, "leader-elect", true, "work only while no other controller does; without it there must be one only")
	flags.StringVar(&c.leaseNamespace, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease that the leader has; default: POD_NAMESPACE of the environment, or that of the pod's service account")
	flags.StringSliceVar(&c.profilesDirs, "profiles-dir", nil, "folders with a file <name>.yaml for each PartitionProfile that is to be there, the first wins; without any, nobody keeps profiles")
	flags.StringVar(&o.MaxUnavailable, "max-unavailable", o.MaxUnavailable, "how many nodes may be without some of their GPUs at once because they are switched: a number, or a percentage of the nodes with GPUs (10%), rounded down, at least 1")
	flags.DurationVar(&o.Policy.DrainDeadline.Duration, "drain-deadline", o.Policy.DrainDeadline.Duration, "how long pods have to leave GPUs that change, where the profile does not say")
	flags.Var((*afterDeadline)(&o.Policy.AfterDeadline), "after-deadline", "what happens to pods that are there still, where the profile does not say: GiveUp or Force")
	flags.StringSliceVar(&o.PauseLabels, "pause-labels", o.PauseLabels, "node labels that start clients of GPUs; while GPUs change, those that are true are "+switchover.PausedValue)
	flags.StringSliceVar(&o.ClientNamespaces, "client-namespaces", o.ClientNamespaces, "namespaces of the DaemonSets that the pause labels start; the end of their pods is waited for")
	flags.IntVar(&o.Workers, "workers", o.Workers, "how many nodes are looked at side by side")
	d := &o.Deadlines
	for _, f := range []struct {
		name, help string
		value      *time.Duration
	}{
		{"planning-deadline", "how long a node's plugin has to work out what has to change", &d.Planning},
		{"taint-deadline", "how long a node's plugin has to taint the devices that change and to plan again", &d.Tainted},
		{"force-deadline", "how long pods have to end that were deleted after the drain's deadline", &d.Force},
		{"apply-deadline", "how long a node's plugin has to change GPUs; a reload of AMD's driver takes minutes", &d.Applying},
		{"reboot-deadline", "how long a node has to reboot and finish", &d.Rebooting},
		{"verify-deadline", "how long node and API server have to agree afterwards", &d.Verifying},
		{"roll-back-deadline", "how long a node's plugin has to put back what was", &d.RollingBack},
		{"client-deadline", "how long paused clients have to end before GPUs are changed all the same", &d.Clients},
	} {
		flags.DurationVar(f.value, f.name, *f.value, f.help)
	}
}

// check refuses what cannot work.
func (c *config) check() error {
	if _, err := switchover.NewBudget(intstr.Parse(c.options.MaxUnavailable), nil); err != nil {
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
