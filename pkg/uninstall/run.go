package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// beatInterval is how often the order is renewed.
	beatInterval = 10 * time.Second
	// lookInterval is the time between the first two looks at what is still there.
	lookInterval = time.Second
	// settleTime is how long the order stands at least: a plugin that publishes
	// nothing at the moment can show by nothing that it has seen it.
	settleTime = 3 * time.Second
	// callTimeout is how long one answer may take, and the last calls, when time is up already.
	callTimeout = 15 * time.Second
)

// Config is what Run works with.
type Config struct {
	Client kubernetes.Interface
	// Ours is for the objects that Tranche defines, Objects for the metadata of all.
	Ours    client.Interface
	Objects metadata.Interface
	// Namespace and Release are Helm's. Revision, too, if Helm has begun to uninstall; 0:
	// a person runs this.
	Namespace string
	Release   string
	Revision  int
	// ConfigMap is the name of the order, DaemonSet that of the plugins.
	ConfigMap string
	DaemonSet string
	// Controller and Scheduler are the names of the Deployments of the controller and of the second
	// scheduler, empty: there is none.
	Controller string
	Scheduler  string
	// Force uninstalls although pods hold GPUs, GPUs are being changed, or nodes do
	// not answer.
	Force bool
	// Deadline is how long the plugins have to withdraw what they publish.
	Deadline time.Duration
	// Out is told what happens, Progress what is waited for. It may be nil.
	Out      io.Writer
	Progress func(format string, args ...any)

	// Look is how often to look; tests are impatient. Settle likewise.
	Look, Settle time.Duration
}

// Run prepares the end of the installation. When it returns without an error,
// nothing is published and no claim is prepared any more, until the order
// expires, the controller and the second scheduler are stopped, and nothing of them is
// left; with an error, all of them go on.
func Run(ctx context.Context, c Config) error {
	c.setDefaults()
	if err := c.refuse(ctx); err != nil {
		return err
	}
	order := &orderGiver{Config: &c}
	if err := order.give(ctx); err != nil {
		return err
	}
	err := c.withdraw(ctx, order)
	if err == nil {
		// A pod may have got a GPU after the first look and before the
		// plugins saw the order. From now on none can.
		err = c.refuse(ctx)
	}
	restart := func(context.Context) error { return nil }
	if err == nil {
		restart, err = c.stop(ctx)
	}
	if err == nil {
		err = errors.Join(order.give(ctx), c.clear(ctx))
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return errors.Join(err, restart(ctx), order.takeBack(ctx))
	}
	fmt.Fprintln(c.Out, "Nothing is published any more. Each plugin removes its files from its node when it ends.")
	return nil
}

// refuse fails if it is not the time to uninstall.
func (c *Config) refuse(ctx context.Context) error {
	if err := c.refuseIfHeld(ctx); err != nil {
		return err
	}
	return c.refuseIfSwitched(ctx)
}

// refuseIfHeld fails, with who holds what and what to do, if pods hold GPUs.
func (c *Config) refuseIfHeld(ctx context.Context) error {
	var holders []holder
	err := pages(ctx, func(ctx context.Context, next string) (string, error) {
		list, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return "", err
		}
		holders = append(holders, findHolders(list.Items)...)
		return list.Continue, nil
	})
	if err != nil {
		return fmt.Errorf("list the ResourceClaims to see who holds GPUs: %w", err)
	}
	if len(holders) == 0 {
		return nil
	}
	if c.Force {
		fmt.Fprintf(c.Out, "%s is set, so Tranche is uninstalled although GPUs are held:\n%s"+
			"These pods keep running. Without Tranche, their nodes cannot release the GPUs: the pods will hang in Terminating until Tranche is installed again.\n", c.force(), describe(holders))
		return nil
	}
	return fmt.Errorf("pods hold GPUs, so Tranche is not uninstalled; nothing was changed. Held now:\n%s"+
		"What to do:\n"+
		"  - end these pods (delete their Deployment, Job and so on, or they come back), then uninstall again:\n%s%s",
		describe(holders), commands(holders), c.otherwise("uninstall all the same; the pods run on, but cannot end properly until Tranche is installed again"))
}

func (c *Config) setDefaults() {
	if c.Look == 0 {
		c.Look, c.Settle = lookInterval, settleTime
	}
}

func (c *Config) tell(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(format, args...)
	}
}

// withdraw waits until the plugins publish nothing any more.
func (c *Config) withdraw(ctx context.Context, order *orderGiver) error {
	fmt.Fprintln(c.Out, "The plugins are told to withdraw the GPUs of their nodes …")
	waiting, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	began := time.Now()
	beat := began
	for {
		left, err := c.find(waiting, slicesKind, metav1.NamespaceAll, published, 1)
		if err == nil && len(left) == 0 && time.Since(began) >= c.Settle {
			return nil
		}
		if len(left) > 0 {
			c.tell("Waiting until the plugins have withdrawn the GPUs; ResourceSlice %s is left, for one.", left[0].Name)
		}
		if time.Since(beat) > beatInterval {
			if err := order.give(waiting); err != nil && waiting.Err() == nil {
				return err
			}
			beat = time.Now()
		}
		switch err := c.rest(waiting, began); {
		case ctx.Err() != nil:
			return fmt.Errorf("wait until the plugins have withdrawn the GPUs: %w", ctx.Err())
		case err != nil:
			return c.late(ctx)
		}
	}
}

// rest waits for the next look. The longer it has taken, the more seldom are looks.
func (c *Config) rest(ctx context.Context, began time.Time) error {
	return sleep.For(ctx, min(max(c.Look, time.Since(began)/8), beatInterval))
}

// late deals with nodes that have not withdrawn their GPUs in time: it says why,
// or does it for them if force is set.
func (c *Config) late(ctx context.Context) error {
	left, err := c.find(ctx, slicesKind, metav1.NamespaceAll, published, 0)
	if err != nil {
		return err
	}
	reasons := c.reasons(ctx, left)
	if !c.Force {
		return fmt.Errorf("some nodes have not withdrawn their GPUs within %s, so Tranche is not uninstalled:\n%s"+
			"What to do:\n"+
			"  - bring these nodes back, or delete their Node objects if they are gone for good, and uninstall again\n%s",
			c.Deadline, reasons, c.otherwise("uninstall all the same, and clean these nodes by hand (docs/how-to/upgrade-and-uninstall.md)"))
	}
	fmt.Fprintf(c.Out, "%s is set, so what these nodes publish is deleted; their files must be removed by hand (docs/how-to/upgrade-and-uninstall.md):\n%s", c.force(), reasons)
	return c.deleteFound(ctx, slicesKind, left)
}
