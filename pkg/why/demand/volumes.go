package demand

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"
)

// Storage contains the objects behind a pod's volumes. A kind is nil if it could not be read.
type Storage struct {
	Claims  []corev1.PersistentVolumeClaim
	Volumes []corev1.PersistentVolume
	Classes []storagev1.StorageClass
}

// VolumeState is the state of a pod's volume.
type VolumeState string

// The states of a volume. VolumeReady means that the volume does not prevent scheduling.
const (
	VolumeReady       VolumeState = "Ready"
	VolumeMissing     VolumeState = "Missing"
	VolumeTerminating VolumeState = "Terminating"
	VolumeLost        VolumeState = "Lost"
	// VolumeUnbound: it must be bound before the pod is scheduled, and is not.
	VolumeUnbound VolumeState = "Unbound"
	// VolumeUnknown: its PersistentVolumeClaim or StorageClass could not be read.
	VolumeUnknown VolumeState = "Unknown"
)

// bindCompleted is on a PersistentVolumeClaim that is bound (k8s.io/component-helpers/storage/volume).
const bindCompleted = "pv.kubernetes.io/bind-completed"

// Volume is a volume of a pod that is a PersistentVolumeClaim, or becomes one.
type Volume struct {
	Name, Claim string
	State       VolumeState
	// Class is the StorageClass of a volume that is not bound.
	Class string
	// PV is the PersistentVolume of a bound volume, and Nodes selects the nodes that can reach it, or is
	// nil for all. NodesKnown is true if the PersistentVolume could be read.
	PV         string
	Nodes      *corev1.NodeSelector
	NodesKnown bool
}

// Volumes returns the volumes of a pod that are PersistentVolumeClaims.
func Volumes(pod *corev1.Pod, s Storage) []Volume {
	var out []Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, s.volume(pod, v.Name, v.PersistentVolumeClaim.ClaimName, false))
		case v.Ephemeral != nil:
			out = append(out, s.volume(pod, v.Name, ephemeral.VolumeClaimName(pod, v), true))
		}
	}
	return out
}

func (s Storage) volume(pod *corev1.Pod, name, claim string, own bool) Volume {
	v := Volume{Name: name, Claim: claim, State: VolumeUnknown}
	if s.Claims == nil {
		return v
	}
	i := slices.IndexFunc(s.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == claim && c.Namespace == pod.Namespace })
	if i < 0 {
		v.State = VolumeMissing
		return v
	}
	c := &s.Claims[i]
	switch {
	case own && ephemeral.VolumeIsForPod(pod, c) != nil:
		v.State = VolumeMissing
	case c.DeletionTimestamp != nil:
		v.State = VolumeTerminating
	case c.Status.Phase == corev1.ClaimLost:
		v.State = VolumeLost
	case c.Spec.VolumeName != "" && c.Annotations[bindCompleted] != "":
		v.State, v.PV = VolumeReady, c.Spec.VolumeName
		s.reach(&v)
	default:
		v.State = s.unbound(&v, c)
	}
	return v
}

// reach sets the nodes that can reach a bound volume.
func (s Storage) reach(v *Volume) {
	i := slices.IndexFunc(s.Volumes, func(p corev1.PersistentVolume) bool { return p.Name == v.PV })
	if i < 0 {
		return
	}
	v.NodesKnown = true
	if a := s.Volumes[i].Spec.NodeAffinity; a != nil {
		v.Nodes = a.Required
	}
}

// unbound returns the state of an unbound volume: it is ready if it is bound when its pod is scheduled.
func (s Storage) unbound(v *Volume, c *corev1.PersistentVolumeClaim) VolumeState {
	v.Class = ptr.Deref(c.Spec.StorageClassName, "")
	if v.Class == "" {
		return VolumeUnbound
	}
	if s.Classes == nil {
		return VolumeUnknown
	}
	i := slices.IndexFunc(s.Classes, func(k storagev1.StorageClass) bool { return k.Name == v.Class })
	if i >= 0 && ptr.Deref(s.Classes[i].VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer {
		return VolumeReady
	}
	return VolumeUnbound
}
