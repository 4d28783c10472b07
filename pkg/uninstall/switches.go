package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// changing are the states in which a node's plugin is at work on its GPUs: who ends it
// then leaves them half changed.
var changing = []v1alpha1.State{v1alpha1.Applying, v1alpha1.Rebooting, v1alpha1.RollingBack}

// refuseIfSwitched fails, with what to do, if GPUs of a node are being changed.
func (c *Config) refuseIfSwitched(ctx context.Context) error {
	var b strings.Builder
	err := pages(ctx, func(ctx context.Context, next string) (string, error) {
		list, err := c.Ours.GPUNodes().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			n := &list.Items[i]
			if sw := n.Status.Switch; sw != nil && slices.Contains(changing, n.Status.State) {
				fmt.Fprintf(&b, "  node %s: from %s to %s, %s\n", n.Name, orNone(sw.From.Profile), orNone(sw.To.Profile), n.Status.State)
			}
		}
		return list.Continue, nil
	})
	if err != nil && !apierrors.IsNotFound(err) { // a cluster without the kind has none
		return fmt.Errorf("list the GPUNodes: %w", err)
	}
	if b.Len() == 0 {
		return nil
	}
	if c.Force {
		fmt.Fprintf(c.Out, "%s is set, so Tranche is uninstalled although the GPUs of these nodes are being changed, and may stay in any mode:\n%s", c.force(), b.String())
		return nil
	}
	return fmt.Errorf("the GPUs of nodes are being changed, so Tranche is not uninstalled; nothing was changed. Now:\n%s"+
		"What to do:\n"+
		"  - wait until that is over, then uninstall again:\n      kubectl get gpunodes --watch\n%s",
		b.String(), c.otherwise("uninstall all the same; the GPUs may stay in any mode"))
}

func orNone(profile string) string {
	if profile == "" {
		return "no profile"
	}
	return profile
}
