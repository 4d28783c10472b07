package adopt

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// fieldManager is the field manager of what labels say.
const fieldManager = "tranche-node-labels"

// mostNamed is how many items a message lists; the rest is counted.
const mostNamed = 5

// Adopter writes what node labels say into GPUNodes. It is safe for concurrent use.
type Adopter struct {
	// Client reads from caches and writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	Events recorder.EventRecorder
	Config

	configMaps *configMaps
}

// New returns an Adopter. The caller sets Events.
func New(c client.Client, reader client.Reader, config Config) *Adopter {
	return &Adopter{Client: c, Reader: reader, Config: config, configMaps: newConfigMaps(reader, &config)}
}

// Adopt copies the profile that the labels of a node name into the spec of its GPUNode, and updates g.
// planned reports whether a PartitionPlan selects the node.
func (a *Adopter) Adopt(ctx context.Context, g *v1beta1.GPUNode, node *corev1.Node, planned bool) (*Result, error) {
	r, err := a.decide(ctx, false, g, node, planned)
	if err != nil {
		return nil, err
	}
	if r.done(g, node) {
		return r, nil
	}
	// Nothing is written because of an outdated cache: a new leader could switch a node back to an
	// earlier profile.
	var liveNode corev1.Node
	if err := a.Reader.Get(ctx, client.ObjectKeyFromObject(node), &liveNode); err != nil {
		if apierrors.IsNotFound(err) {
			return r, nil // Its labels are not known.
		}
		return nil, fmt.Errorf("read node %s: %w", node.Name, err)
	}
	var now v1beta1.GPUNode
	if err := a.Reader.Get(ctx, client.ObjectKeyFromObject(g), &now); err != nil {
		return nil, fmt.Errorf("read GPUNode %s: %w", g.Name, err)
	}
	if r, err = a.decide(ctx, true, &now, &liveNode, planned); err != nil {
		return nil, err
	}
	if r.done(&now, &liveNode) {
		now.DeepCopyInto(g)
		return r, nil
	}
	if err := a.make(ctx, r); err != nil {
		return nil, err
	}
	if err := a.write(ctx, &now, r); err != nil {
		return nil, err
	}
	now.DeepCopyInto(g)
	return r, nil
}

// done reports whether there is nothing to write.
func (r *Result) done(g *v1beta1.GPUNode, node *corev1.Node) bool {
	switch {
	case node.UID == "", r.Problem.Reason != "":
		return true
	case g.Annotations[names.AnnotationProfileFrom] != r.from, r.from != "" && !r.held && g.Annotations[names.AnnotationProfileSet] != r.profile, !equality.Semantic.DeepEqual(g.Spec, r.spec(g)):
		return false
	}
	return r.made == nil || r.there != nil && equality.Semantic.DeepEqual(r.there.Spec, *r.made)
}

// make creates or updates a PartitionProfile that is made from a configuration.
func (a *Adopter) make(ctx context.Context, r *Result) error {
	there := r.there
	switch {
	case r.made == nil:
	case there == nil:
		there = &v1beta1.PartitionProfile{
			ObjectMeta: metav1.ObjectMeta{Name: r.profile, Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromConfigMap}},
			Spec:       *r.made,
		}
		if err := a.Client.Create(ctx, there, client.FieldOwner(fieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create PartitionProfile %s: %w", r.profile, err)
		}
		klog.FromContext(ctx).V(2).Info("Created a profile from a configuration", "profile", r.profile, "from", r.from)
	case !equality.Semantic.DeepEqual(there.Spec, *r.made):
		there.Spec = *r.made
		if err := a.Client.Update(ctx, there, client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("update PartitionProfile %s: %w", r.profile, err)
		}
		klog.FromContext(ctx).V(2).Info("Updated a profile from a configuration", "profile", r.profile, "from", r.from)
	}
	r.there = there
	return nil
}

// write writes what labels say into a GPUNode. It requires that g is the newest version.
func (a *Adopter) write(ctx context.Context, g *v1beta1.GPUNode, r *Result) error {
	before := g.DeepCopy()
	g.Spec = r.spec(g)
	delete(g.Annotations, names.AnnotationProfileFrom)
	delete(g.Annotations, names.AnnotationProfileSet)
	if r.from != "" {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, names.AnnotationProfileFrom, r.from)
	}
	if r.from != "" && !r.held {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, names.AnnotationProfileSet, g.Spec.ProfileName)
	}
	if equality.Semantic.DeepEqual(before, g) {
		return nil // Only the PartitionProfile differed.
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.Client.Patch(ctx, g, patch, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("write the spec of GPUNode %s: %w", g.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Set the profile of a GPUNode by node labels", "profile", g.Spec.ProfileName, "from", r.from)
	if old := before.Spec.ProfileName; old != "" && before.Annotations[names.AnnotationProfileFrom] == "" && old != g.Spec.ProfileName {
		a.Events.Eventf(g.EventObject(), nil, corev1.EventTypeWarning, names.EventProfileReplaced, "SetProfile",
			"spec.profileName was %s and is %s now, because the node's label %s has precedence; remove the label to set spec.profileName", old, g.Spec.ProfileName, r.from)
	}
	return nil
}

// spec returns what the spec of a GPUNode should be.
func (r *Result) spec(g *v1beta1.GPUNode) v1beta1.GPUNodeSpec {
	spec := *g.Spec.DeepCopy()
	spec.ProfileName = r.profile
	before := recorded(g.Annotations[names.AnnotationProfileFrom])[names.LabelKaiwoEnabled]
	switch {
	case r.held:
		spec.Paused = true
	case before != "" && before != "true":
		spec.Paused = false // A label held the node, and does not any more.
	}
	return spec
}
