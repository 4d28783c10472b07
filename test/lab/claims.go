package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// claims are those of a pod that devices of ours are allocated to.
func (k *kubelet) claims(ctx context.Context, pod *corev1.Pod) (all []*resourceapi.ResourceClaim, err error) {
	var claims []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			claims = append(claims, *name)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			claims = append(claims, *status.ResourceClaimName)
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		claims = append(claims, status.ResourceClaimName)
	}
	for _, name := range claims {
		claim, err := k.api.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if claim.Status.Allocation == nil || !slices.ContainsFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }) {
			return nil, fmt.Errorf("pod %s is not allowed to use ResourceClaim %s", pod.Name, name)
		}
		if slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == names.DriverName }) {
			all = append(all, claim)
		}
	}
	return all, nil
}

// prepare has the plugin prepare the claims of a pod that are not prepared for it.
func (k *kubelet) prepare(ctx context.Context, pod *corev1.Pod) error {
	claims, err := k.claims(ctx, pod)
	if err != nil || len(claims) == 0 {
		return err
	}
	request := &drapb.NodePrepareResourcesRequest{}
	for _, claim := range claims {
		request.Claims = append(request.Claims, &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)})
		k.hold(pod, request.Claims[len(request.Claims)-1], nil) // from now on it may be prepared
	}
	plugin, err := k.plugin.client()
	if err != nil {
		return err
	}
	response, err := plugin.NodePrepareResources(ctx, request)
	if err != nil {
		return err
	}
	for _, claim := range request.Claims {
		answer := response.Claims[claim.Uid]
		switch {
		case answer == nil:
			return fmt.Errorf("NodePrepareResources skipped claim %s", claim.Name)
		case answer.Error != "":
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", claim.Name, answer.Error)
		}
		k.hold(pod, claim, answer.Devices)
	}
	return nil
}

func (k *kubelet) hold(pod *corev1.Pod, claim *drapb.Claim, devices []*drapb.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[pod.UID] == nil {
		k.held[pod.UID] = map[types.UID]*preparedClaim{}
	}
	k.held[pod.UID][types.UID(claim.Uid)] = &preparedClaim{ref: claim, devices: devices}
}

// releaseGone releases the claims of pods that were deleted by force.
func (k *kubelet) releaseGone(ctx context.Context) error {
	there := map[types.UID]bool{}
	for _, o := range k.pods.GetStore().List() {
		there[o.(*corev1.Pod).UID] = true //nolint:forcetypeassert // it has only pods
	}
	k.mu.Lock()
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(k.held)), func(pod types.UID) bool { return there[pod] })
	k.mu.Unlock()
	for _, pod := range gone {
		if err := k.release(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// release has the plugin release the claims of a pod that no other pod of the node has.
func (k *kubelet) release(ctx context.Context, pod types.UID) error {
	k.mu.Lock()
	request := &drapb.NodeUnprepareResourcesRequest{}
	for claim, prepared := range k.held[pod] {
		if !k.shared(pod, claim) {
			request.Claims = append(request.Claims, prepared.ref)
		}
	}
	k.mu.Unlock()
	if len(request.Claims) > 0 {
		plugin, err := k.plugin.client()
		if err != nil {
			return err
		}
		response, err := plugin.NodeUnprepareResources(ctx, request)
		if err != nil {
			return err
		}
		for _, claim := range request.Claims {
			if problem := response.Claims[claim.Uid].GetError(); problem != "" {
				return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", claim.Name, problem)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, pod)
	return nil
}

// shared reports whether another pod has a claim. k.mu is locked.
func (k *kubelet) shared(pod, claim types.UID) bool {
	for other, claims := range k.held {
		if other != pod && claims[claim] != nil {
			return true
		}
	}
	return false
}
