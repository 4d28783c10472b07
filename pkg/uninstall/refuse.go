package uninstall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// errNoPlugins is returned if no plugin can clean up.
var errNoPlugins = errors.New("there is no DaemonSet of Tranche, so no plugin can clean up its node; " +
	"--check lists what is left, and docs/admin/upgrade-and-uninstall.md describes how to clean up manually")

// ErrRefused is what the errors are with which Run refuses.
var ErrRefused = errors.New("Tranche cannot be uninstalled now") //nolint:staticcheck // a name

// refusal is the error with which Run refuses. It says what is in the way and what to do.
type refusal string

func (r refusal) Error() string { return string(r) }

// Is reports whether the target is ErrRefused.
func (r refusal) Is(target error) bool { return target == ErrRefused }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// refuse returns an error, with the remedy, if Tranche cannot be uninstalled now.
func (c *Config) refuse(ctx context.Context) error {
	if err := c.refuseIfHeld(ctx); err != nil {
		return err
	}
	if err := c.refuseIfSwitched(ctx); err != nil {
		return err
	}
	return c.refuseIfSilent(ctx)
}

func (c *Config) refuseIfHeld(ctx context.Context) error {
	holders, err := c.holders(ctx)
	if err != nil || len(holders) == 0 {
		return err
	}
	if c.Force {
		fmt.Fprintf(c.Out, "%s is set, so Tranche is uninstalled although GPUs are held:\n%s"+
			"These pods keep running. Without Tranche, their nodes cannot release the GPUs: the pods will hang in Terminating until Tranche is installed again.\n", c.force(), describe(holders))
		return nil
	}
	return refusef("pods hold GPUs, so Tranche is not uninstalled; nothing was changed. Held now:\n%s"+
		"What to do:\n"+
		"  - end these pods (delete their Deployment, Job and so on, or they come back), then uninstall again:\n%s%s",
		describe(holders), commands(holders), c.otherwise("uninstall anyway; the pods run on, but cannot end properly until Tranche is installed again"))
}

// refuseIfHeldMeanwhile returns an error if a pod has been allocated a GPU between the first check and
// the end of its node's plugin. The node keeps what it needs to release the GPU.
func (c *Config) refuseIfHeldMeanwhile(ctx context.Context) error {
	holders, err := c.holders(ctx)
	if err != nil || len(holders) == 0 || c.Force {
		return err
	}
	return fmt.Errorf("pods were allocated GPUs in the meantime, and cannot terminate until Tranche is installed again. Held now:\n%s", describe(holders))
}

// changing are the states in which a node's plugin changes GPUs. Ending it then leaves them in an
// intermediate state.
var changing = []v1beta1.State{v1beta1.Applying, v1beta1.Rebooting, v1beta1.RollingBack}

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
				fmt.Fprintf(&b, "  node %s: from %s to %s, %s\n", n.Name, orNone(sw.From.ProfileName), orNone(sw.To.ProfileName), n.Status.State)
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
	return refusef("the GPUs of nodes are being changed, so Tranche is not uninstalled; nothing was changed. Now:\n%s"+
		"What to do:\n"+
		"  - wait until that is over, then uninstall again:\n      kubectl get gpunodes --watch\n%s",
		b.String(), c.otherwise("uninstall anyway; the GPUs may stay in any mode"))
}

func orNone(profile string) string {
	if profile == "" {
		return "no profile"
	}
	return profile
}

// refuseIfSilent returns an error if nodes publish GPUs and have no plugin that could withdraw them.
func (c *Config) refuseIfSilent(ctx context.Context) error {
	reasons, left, err := c.unfinished(ctx, false)
	switch {
	case err != nil:
		return err
	case c.DaemonSet == "" && len(left) > 0:
		return errNoPlugins
	case reasons == "":
		return nil
	case c.Force:
		fmt.Fprintf(c.Out, "%s is set, so Tranche is uninstalled although the plugins of these nodes do not answer:\n%s", c.force(), reasons)
		return nil
	}
	return refusef("the plugins of nodes do not answer, so Tranche is not uninstalled; nothing was changed. Now:\n%s"+
		"What to do:\n"+
		"  - bring these nodes back, or delete their Node objects if they are gone for good, and uninstall again\n%s",
		reasons, c.otherwise("uninstall anyway, and clean these nodes by hand (docs/admin/upgrade-and-uninstall.md)"))
}

// unfinished returns a line for each node that publishes GPUs, with the reason for which its plugin
// cannot withdraw them, or, if ended is true, has not withdrawn them. It describes at most most nodes.
// left are all ResourceSlices.
func (c *Config) unfinished(ctx context.Context, ended bool) (reasons string, left []metav1.ObjectMeta, err error) {
	if left, err = c.find(ctx, slicesKind, metav1.NamespaceAll, published, 0); err != nil || c.DaemonSet == "" {
		return "", left, err
	}
	plugins, err := c.plugins(ctx)
	if err != nil {
		return "", nil, err
	}
	nodes := map[string]bool{}
	for i := range left {
		for _, owner := range left[i].OwnerReferences {
			nodes[owner.Name] = nodes[owner.Name] || owner.Kind == "Node"
		}
	}
	for node, pod := range plugins {
		// A plugin that is being deleted, after an interrupted uninstallation, withdraws them.
		works := podReady(pod) || pod.DeletionTimestamp != nil
		nodes[node] = ended || nodes[node] && !works
	}
	maps.DeleteFunc(nodes, func(_ string, unfinished bool) bool { return !unfinished })
	var b strings.Builder
	described := 0
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		reason := c.reason(ctx, node, plugins[node], ended)
		if reason == "" {
			continue
		}
		if described++; described > most {
			fmt.Fprintln(&b, "  … and more nodes")
			break
		}
		fmt.Fprintf(&b, "  node %s: %s\n", node, reason)
	}
	return b.String(), left, nil
}

// reason returns why a plugin has not withdrawn the GPUs of its node, or cannot. It is empty if the
// garbage collector withdraws them.
func (c *Config) reason(ctx context.Context, name string, plugin *corev1.Pod, ended bool) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && ended:
		return "it is gone; Kubernetes' garbage collector will remove what it publishes"
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	case !nodeReady(node):
		return "it is not ready, so its plugin cannot be reached"
	case plugin == nil && ended:
		return "its plugin could not release everything, and has ended: see the events of the node"
	case plugin == nil:
		return fmt.Sprintf("no plugin runs there (does the nodeSelector of DaemonSet %s leave it out?)", c.DaemonSet)
	case !ended:
		return fmt.Sprintf("its plugin does not work: kubectl -n %s logs %s --previous", c.Namespace, plugin.Name)
	case plugin.DeletionTimestamp == nil:
		return fmt.Sprintf("its plugin is not being deleted. If DaemonSet %s/%s exists again, turn off the tool that created it (automated sync of Argo CD, Flux), and repeat", c.Namespace, c.DaemonSet)
	}
	return fmt.Sprintf("its plugin has not ended yet: kubectl -n %s logs %s", c.Namespace, plugin.Name)
}

// plugins returns the plugins' pods by node, the ready one if a node has several.
func (c *Config) plugins(ctx context.Context) (map[string]*corev1.Pod, error) {
	found := map[string]*corev1.Pod{}
	err := pages(ctx, func(ctx context.Context, next string) (string, error) {
		list, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: component + "=" + componentName, Limit: page, Continue: next})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if before := found[pod.Spec.NodeName]; before == nil || !podReady(before) {
				found[pod.Spec.NodeName] = pod
			}
		}
		return list.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the plugins in namespace %s: %w", c.Namespace, err)
	}
	return found, nil
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// force returns the name of the setting that forces the uninstallation.
func (c *Config) force() string {
	if c.Revision == 0 {
		return "--force"
	}
	return "uninstall.force"
}

// otherwise returns the alternatives to waiting: to keep Tranche, or to uninstall it anyway, with the
// given consequences. Helm has marked the release, and refuses to upgrade it until a rollback.
func (c *Config) otherwise(anyway string) string {
	if c.Revision == 0 {
		return fmt.Sprintf("  - or %s: --force", anyway)
	}
	keep := fmt.Sprintf("      helm -n %s rollback %s %d\n", c.Namespace, c.Release, c.Revision)
	return fmt.Sprintf("  - or keep Tranche:\n%s  - or %s:\n%[1]s      helm -n %[3]s upgrade %[4]s CHART --reset-then-reuse-values --set uninstall.force=true\n      helm -n %[3]s uninstall %[4]s",
		keep, anyway, c.Namespace, c.Release)
}
