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

// listGPUNodes reads the GPUNodes. There are none where nobody has defined what they
// are.
func (c *Config) listGPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	list, err := c.Ours.GPUNodes().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the GPUNodes: %w", err)
	}
	return list.Items, nil
}

// refuseIfSwitched fails, with what to do, if GPUs of a node are being changed.
func (c *Config) refuseIfSwitched(ctx context.Context) error {
	all, err := c.listGPUNodes(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	for i := range all {
		status := &all[i].Status
		if status.Switch != nil && slices.Contains(changing, status.State) {
			fmt.Fprintf(&b, "  node %s: from %s to %s, %s\n", all[i].Name, orNone(status.Switch.From.Profile), orNone(status.Switch.To.Profile), status.State)
		}
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
