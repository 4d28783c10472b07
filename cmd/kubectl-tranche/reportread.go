package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
)

// Limits of the log of one container. mostLog is in bytes.
const (
	logLines = 5000
	mostLog  = 2 << 20
)

// listing are the objects of a file.
type listing struct {
	file string
	kind schema.GroupVersionKind
}

// reported is a pointer to an object that is reported.
type reported[T any] interface {
	read.Object[T]
	metav1.Object
}

// addAll adds the objects that keep returns true for, which can also change them: as many as fit into half of what can
// be written. Annotations of others are left out.
func addAll[T any, P reported[T]](r *reportRun, of listing, all []T, err error, keep func(*T) bool) error {
	if r.lacks(of.file, err); err != nil {
		return nil //nolint:nilerr // it is noted
	}
	items := []P{}
	for i := range all {
		o := P(&all[i])
		if keep != nil && !keep(&all[i]) {
			continue
		}
		o.SetManagedFields(nil)
		annotations := map[string]string{}
		for key, value := range o.GetAnnotations() {
			if domain, _, _ := strings.Cut(key, "/"); domain == "tranche.dev" || strings.HasSuffix(domain, ".tranche.dev") {
				annotations[key] = value
			}
		}
		o.SetAnnotations(annotations)
		o.GetObjectKind().SetGroupVersionKind(of.kind)
		items = append(items, o)
	}
	slices.SortFunc(items, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for count := len(items); ; count /= 2 {
		var b bytes.Buffer
		if err := picture.WriteYAML(&b, map[string]any{"apiVersion": "v1", "kind": "List", "items": items[:count]}); err != nil {
			return err
		}
		if b.Len() > r.left/2 && count > 0 {
			continue
		}
		if count < len(items) {
			r.lacks(of.file, fmt.Errorf("%d of %d objects are left out: choose nodes by --node", len(items)-count, len(items)))
		}
		return r.add(of.file, b.Bytes())
	}
}

// objects adds the objects of the cluster.
func (r *reportRun) objects(ctx context.Context) error {
	ours := func(kind string) schema.GroupVersionKind { return v1beta1.GroupVersion.WithKind(kind) }
	devices := func(kind string) schema.GroupVersionKind { return resourceapi.SchemeGroupVersion.WithKind(kind) }
	core := func(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

	gpuNodes, gpuNodesErr := read.All[v1beta1.GPUNode](ctx, r, "")
	published, slicesErr := read.List[resourceapi.ResourceSlice](ctx, r, "", read.Slices.Only)
	profiles, profilesErr := read.All[v1beta1.PartitionProfile](ctx, r, "")
	plans, plansErr := read.All[v1beta1.PartitionPlan](ctx, r, "")
	classes, classesErr := read.All[resourceapi.DeviceClass](ctx, r, "")
	rules, rulesErr := read.TaintRules(ctx, r)
	claims, claimsErr := read.All[resourceapi.ResourceClaim](ctx, r, "")
	nodes, nodesErr := read.All[corev1.Node](ctx, r, "")
	var events []corev1.Event
	var eventsErr error
	for _, selector := range []string{"source=" + names.ControllerName, "source=" + names.DriverName, "reason=FailedPrepareDynamicResources"} {
		some, err := read.List[corev1.Event](ctx, r, "", metav1.ListOptions{FieldSelector: selector})
		events, eventsErr = append(events, some...), cmp.Or(eventsErr, err)
	}
	withGPUs := map[string]bool{}
	for i := range gpuNodes {
		withGPUs[gpuNodes[i].Name] = true
	}
	for i := range published {
		withGPUs[ptr.Deref(published[i].Spec.NodeName, "")] = true
	}
	return errors.Join(
		addAll(r, listing{"gpunodes.yaml", ours(v1beta1.NodeKind)}, gpuNodes, gpuNodesErr, func(n *v1beta1.GPUNode) bool { return r.reports(n.Name) }),
		addAll(r, listing{"partitionprofiles.yaml", ours(v1beta1.ProfileKind)}, profiles, profilesErr, nil),
		addAll(r, listing{"partitionplans.yaml", ours(v1beta1.PlanKind)}, plans, plansErr, nil),
		addAll(r, listing{"nodes.yaml", core("Node")}, nodes, nodesErr, func(n *corev1.Node) bool {
			n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil // of others' pods
			return r.reports(n.Name) && withGPUs[n.Name]
		}),
		addAll(r, listing{"deviceclasses.yaml", devices("DeviceClass")}, classes, classesErr, nil),
		addAll(r, listing{"devicetaintrules.yaml", devices("DeviceTaintRule")}, rules, rulesErr, nil),
		addAll(r, listing{"resourceslices.yaml", devices("ResourceSlice")}, published, slicesErr, func(s *resourceapi.ResourceSlice) bool {
			return r.reports(ptr.Deref(s.Spec.NodeName, ""))
		}),
		addAll(r, listing{"resourceclaims.yaml", devices("ResourceClaim")}, claims, claimsErr, r.reportsClaim),
		addAll(r, listing{"events.yaml", core("Event")}, events, eventsErr, nil),
		r.installation(ctx),
	)
}

// reportsClaim reports whether a claim holds devices of Tranche.
func (r *reportRun) reportsClaim(c *resourceapi.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(d resourceapi.DeviceRequestAllocationResult) bool {
		return d.Driver == names.DriverName && r.reports(d.Pool)
	})
}

// installation adds what the chart has made in the namespace of Tranche, without values of environment variables.
func (r *reportRun) installation(ctx context.Context) error {
	if r.system == "" {
		return nil
	}
	k, ours := r.Kubernetes, metav1.ListOptions{LabelSelector: partLabel}
	var sets appsv1.DaemonSetList
	var deployments appsv1.DeploymentList
	var files corev1.ConfigMapList
	setsErr := into(&sets)(k.AppsV1().DaemonSets(r.system).List(ctx, ours))
	deploymentsErr := into(&deployments)(k.AppsV1().Deployments(r.system).List(ctx, ours))
	filesErr := into(&files)(k.CoreV1().ConfigMaps(r.system).List(ctx, ours))
	return errors.Join(
		addAll(r, listing{"daemonsets.yaml", appsv1.SchemeGroupVersion.WithKind("DaemonSet")}, sets.Items, setsErr, func(d *appsv1.DaemonSet) bool { return hideValues(&d.Spec.Template.Spec) }),
		addAll(r, listing{"deployments.yaml", appsv1.SchemeGroupVersion.WithKind("Deployment")}, deployments.Items, deploymentsErr, func(d *appsv1.Deployment) bool { return hideValues(&d.Spec.Template.Spec) }),
		addAll(r, listing{"configmaps.yaml", corev1.SchemeGroupVersion.WithKind("ConfigMap")}, files.Items, filesErr, nil),
	)
}

// into returns a function that stores a list, unless there is an error.
func into[L any](to *L) func(*L, error) error {
	return func(list *L, err error) error {
		if err == nil {
			*to = *list
		}
		return err
	}
}

// hideValues removes the values of environment variables. It returns true.
func hideValues(pod *corev1.PodSpec) bool {
	for _, all := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range all {
			for j := range all[i].Env {
				if all[i].Env[j].Value != "" {
					all[i].Env[j].Value = "(left out)"
				}
			}
		}
	}
	return true
}

// logs adds the pods of Tranche and the ends of their logs: first of the controller and of pods in trouble.
func (r *reportRun) logs(ctx context.Context) error {
	if r.system == "" {
		return nil
	}
	pods, err := read.List[corev1.Pod](ctx, r, r.system, metav1.ListOptions{LabelSelector: partLabel})
	wanted := func(p *corev1.Pod) bool {
		return hideValues(&p.Spec) && (p.Labels[componentLabel] != "kubelet-plugin" || r.reports(p.Spec.NodeName))
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !wanted(&p) })
	if err := addAll(r, listing{"pods.yaml", corev1.SchemeGroupVersion.WithKind("Pod")}, pods, err, nil); err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Name, b.Name))
	})
	progress := read.ProgressOf(ctx)
	for i := range pods {
		progress.Say("Reading the log of pod %d of %d.", i+1, len(pods))
		for _, s := range slices.Concat(pods[i].Status.InitContainerStatuses, pods[i].Status.ContainerStatuses) {
			file := "logs/" + pods[i].Name + "." + s.Name
			if err := r.log(ctx, &pods[i], s.Name, file+".log", false); err != nil {
				return err
			}
			if s.RestartCount > 0 {
				if err := r.log(ctx, &pods[i], s.Name, file+".previous.log", true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// rank puts pods into an order: plugins without trouble come last.
func rank(p *corev1.Pod) int {
	trouble := p.Status.Phase != corev1.PodRunning || slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready || s.RestartCount > 0 })
	if trouble || p.Labels[componentLabel] != "kubelet-plugin" {
		return 0
	}
	return 1
}

func (r *reportRun) log(ctx context.Context, p *corev1.Pod, container, file string, previous bool) error {
	if r.left == 0 {
		r.lacks(file, errors.New("left out, since the report is as large as it can be"))
		return nil
	}
	stream, err := r.Kubernetes.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: ptr.To(int64(logLines)), Timestamps: true}).Stream(ctx)
	if r.lacks(file, err); err != nil {
		return nil //nolint:nilerr // it is noted
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(io.LimitReader(stream, 8*mostLog))
	if r.lacks(file, err); len(data) > mostLog {
		r.lacks(file, fmt.Errorf("the first %d bytes are left out", len(data)-mostLog))
		data = data[len(data)-mostLog:]
	}
	return r.add(file, data)
}
