package defragment

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// maxJobs limits the Jobs that are read for one search, because each is read alone. Pods of other Jobs are
// not moved.
const maxJobs = 1000

// readForSearch reads the first of the nodes, as many as the limits allow, and what else plans for waiting
// pods depend on. It remembers the last node.
func (d *Defragmenter) readForSearch(ctx context.Context, nodes []string, waiting []*corev1.Pod) (*defrag.Input, error) {
	in := d.newInput()
	devices := 0
	for _, name := range nodes[:min(len(nodes), maxNodes)] {
		before := len(in.Slices)
		if err := d.readNode(ctx, in, name); err != nil {
			return nil, err
		}
		d.lastNode = name
		for i := range in.Slices[before:] {
			devices += len(in.Slices[before+i].Spec.Devices)
		}
		if devices >= d.maxDevices {
			break
		}
	}
	return in, d.readRest(ctx, in, waiting)
}

// check proves the plan of an attempt again, for the moves that are left. The error is a *defrag.Refusal if it does
// not hold any more.
func (d *Defragmenter) check(ctx context.Context, node *v1beta1.GPUNode, pod *corev1.Pod, left []v1beta1.DefragmentationMove) error {
	plan := &defrag.Plan{Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, Node: node.Name}
	for _, device := range node.Status.Defragmentation.Devices {
		plan.Devices = append(plan.Devices, defrag.Device{Device: device})
	}
	for i := range left {
		plan.Moves = append(plan.Moves, defrag.Move{Pod: types.NamespacedName{Namespace: left[i].Namespace, Name: left[i].Name}, UID: left[i].UID})
	}
	nodes := []string{node.Name}
	// Also the nodes of the moves that are done: a replacement may have taken the place of another pod.
	nodes = lists.Union(nodes, lists.Map(node.Status.Defragmentation.Moves, func(m v1beta1.DefragmentationMove) string { return m.ToNodeName })...)
	in := d.newInput()
	for _, name := range nodes {
		if err := d.readNode(ctx, in, name); err != nil {
			return err
		}
	}
	if err := d.readRest(ctx, in, []*corev1.Pod{pod}); err != nil {
		return err
	}
	if err := d.readAntiAffinity(ctx, in); err != nil {
		return err
	}
	planner, err := defrag.New(in, defrag.Options{MaxPods: len(left), Timeout: planTimeout})
	if err != nil {
		return fmt.Errorf("prove again that there would be room for pod %s: %w", klog.KObj(pod), err)
	}
	return planner.Check(ctx, plan)
}

func (d *Defragmenter) newInput() *defrag.Input {
	return &defrag.Input{Objects: cluster.Objects{
		Now: d.Clock.Now(), Slices: []resourceapi.ResourceSlice{}, Nodes: []corev1.Node{}, Classes: []resourceapi.DeviceClass{},
	}}
}

// readNode reads a node, its slices and its pods.
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
	for i := range pods.Items {
		in.Pods = append(in.Pods, *trimPod(&pods.Items[i]))
	}
	return nil
}

func (d *Defragmenter) slices(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error) {
	var list resourceapi.ResourceSliceList
	if err := d.Reader.List(ctx, &list, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: node}); err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	return list.Items, nil
}

// readRest reads what does not belong to one node, after the nodes: a claim that holds a device is then
// allocated to what is published. It reads from the API server, because a proof on old objects proves
// nothing. It does not read PersistentVolumeClaims, so pods that have some are not moved.
func (d *Defragmenter) readRest(ctx context.Context, in *defrag.Input, waiting []*corev1.Pod) error {
	for _, pod := range waiting {
		in.Pods = append(in.Pods, *pod)
	}
	needed := neededBy(in, waiting)
	err := errors.Join(
		each(ctx, d.Reader, &resourceapi.DeviceClassList{}, addTo(&in.Classes, nil)),
		each(ctx, d.Reader, &resourceapi.ResourceClaimList{}, addTo(&in.Claims, needed.claim)),
		each(ctx, d.Reader, &resourceapi.ResourceClaimTemplateList{}, addTo(&in.Templates, needed.template)),
		each(ctx, d.Reader, &policyv1.PodDisruptionBudgetList{}, addTo(&in.Budgets, needed.budget)),
		each(ctx, d.Reader, &corev1.NamespaceList{}, addTo(&in.Namespaces, nil)),
	)
	if d.HasRules {
		err = errors.Join(err, each(ctx, d.Reader, &resourceapi.DeviceTaintRuleList{}, addTo(&in.Rules, nil)))
	}
	if err != nil {
		return fmt.Errorf("list what a plan to move pods depends on: %w", err)
	}
	return d.readJobs(ctx, in)
}

// maxTerms limits the anti-affinity that is read, in bytes. Tenants write it.
const maxTerms = 16 << 20

// readAntiAffinity reads the pods on nodes that were not read and whose anti-affinity can keep pods off those
// that were: a topology can be larger than a node. The same terms are kept once.
func (d *Defragmenter) readAntiAffinity(ctx context.Context, in *defrag.Input) error {
	isRead := map[string]bool{}
	for i := range in.Nodes {
		isRead[in.Nodes[i].Name] = true
	}
	known, size := map[string]bool{}, 0
	err := each(ctx, d.Reader, &corev1.PodList{}, func(pod *corev1.Pod) {
		if size > maxTerms || isRead[pod.Spec.NodeName] || !defrag.KeepsPodsAway(pod) {
			return
		}
		only := corev1.Pod{Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, Affinity: &corev1.Affinity{PodAntiAffinity: pod.Spec.Affinity.PodAntiAffinity}}}
		key := pod.Namespace + "/" + only.Spec.Affinity.String()
		if known[key] {
			return
		}
		known[key], size = true, size+2*len(key)
		only.Namespace, only.Name = pod.Namespace, pod.Name
		in.Pods = append(in.Pods, only)
	})
	switch {
	case err != nil:
		return fmt.Errorf("list the pods whose anti-affinity can keep pods off nodes: %w", err)
	case size > maxTerms:
		return fmt.Errorf("the required podAntiAffinity of the cluster's pods has more than %d MiB, so no pods are moved", maxTerms>>20)
	}
	return nil
}

// readJobs reads the Jobs of pods with claims that may be moved: whether a pod is replaced depends on them.
func (d *Defragmenter) readJobs(ctx context.Context, in *defrag.Input) error {
	permissions := defrag.PermissionsOf(in.Namespaces)
	asked := map[types.NamespacedName]bool{}
	for i := range in.Pods {
		pod := &in.Pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !defrag.IsJob(owner) || !hasClaims(pod) || !permissions.Allow(pod) {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
		if asked[name] || len(asked) >= maxJobs {
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

func hasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}
