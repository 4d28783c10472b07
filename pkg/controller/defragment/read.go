package defragment

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// read reads what a plan needs, from the API server: a proof on old objects proves nothing. PersistentVolumeClaims
// are not read, so pods that have some are not moved.
func (d *Defragmenter) read(ctx context.Context, nodes []string, waiting []*corev1.Pod) (*defrag.Input, error) {
	in := &defrag.Input{Objects: cluster.Objects{
		Now: d.Clock.Now(), Slices: []resourceapi.ResourceSlice{}, Nodes: []corev1.Node{},
	}}
	for _, name := range nodes {
		if err := d.readNode(ctx, in, name); err != nil {
			return nil, err
		}
	}
	var classes resourceapi.DeviceClassList
	var rules resourceapi.DeviceTaintRuleList
	var claims resourceapi.ResourceClaimList
	var templates resourceapi.ResourceClaimTemplateList
	var budgets policyv1.PodDisruptionBudgetList
	var namespaces corev1.NamespaceList
	lists := []client.ObjectList{&classes, &claims, &templates, &budgets, &namespaces}
	if d.HasRules {
		lists = append(lists, &rules)
	}
	for _, list := range lists {
		if err := d.Reader.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list what a plan to move pods needs: %w", err)
		}
	}
	in.Classes, in.Rules, in.Claims = append([]resourceapi.DeviceClass{}, classes.Items...), rules.Items, claims.Items
	in.Templates, in.Budgets, in.Namespaces = templates.Items, budgets.Items, namespaces.Items
	for _, pod := range waiting {
		in.Pods = append(in.Pods, *pod)
	}
	return in, d.readJobs(ctx, in)
}

// readNode reads a node, its slices and its pods. Claims are read after the slices: a claim holds what is
// published.
func (d *Defragmenter) readNode(ctx context.Context, in *defrag.Input, name string) error {
	var node corev1.Node
	if err := d.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", name, err)
	}
	published, err := d.slices(ctx, name)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := d.Reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return fmt.Errorf("list the pods of node %s: %w", name, err)
	}
	in.Nodes = append(in.Nodes, node)
	in.Slices = append(in.Slices, published...)
	in.Pods = append(in.Pods, pods.Items...)
	return nil
}

func (d *Defragmenter) slices(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error) {
	var list resourceapi.ResourceSliceList
	if err := d.Reader.List(ctx, &list, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: node}); err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	return list.Items, nil
}

// readJobs reads the Jobs of pods with claims: whether a pod is created again depends on them.
func (d *Defragmenter) readJobs(ctx context.Context, in *defrag.Input) error {
	asked := map[types.NamespacedName]bool{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "Job" || len(pod.Spec.ResourceClaims) == 0 {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
		if asked[name] {
			continue
		}
		asked[name] = true
		var job batchv1.Job
		if err := d.Reader.Get(ctx, name, &job); err == nil {
			in.Jobs = append(in.Jobs, job)
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read Job %s: %w", name, err)
		}
	}
	return nil
}

// check proves the plan of an attempt again, for the moves that are left. The error is a *defrag.Refusal if it does
// not hold any more.
func (d *Defragmenter) check(ctx context.Context, node *v1alpha1.GPUNode, pod *corev1.Pod, left []v1alpha1.DefragmentationMove) error {
	nodes := []string{node.Name}
	plan := &defrag.Plan{Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, Node: node.Name}
	for _, device := range node.Status.Defragmentation.Devices {
		plan.Devices = append(plan.Devices, defrag.Device{Device: device})
	}
	for i := range left {
		m := &left[i]
		plan.Moves = append(plan.Moves, defrag.Move{Pod: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, UID: m.UID})
		if !slices.Contains(nodes, m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	in, err := d.read(ctx, nodes, []*corev1.Pod{pod})
	if err != nil {
		return err
	}
	planner, err := defrag.New(in, defrag.Options{MaxPods: len(left), Patience: patience})
	if err != nil {
		return fmt.Errorf("prove again that there would be room for pod %s: %w", klog.KObj(pod), err)
	}
	return planner.Check(ctx, plan)
}
