package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// kubelet speaks to a plugin over its socket.
type kubelet struct {
	conn *grpc.ClientConn
	dra  drapb.DRAPluginClient
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func dialPlugin(socket string) (*kubelet, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	return &kubelet{conn: conn, dra: drapb.NewDRAPluginClient(conn)}, nil
}

func (k *kubelet) prepare(ctx context.Context, c *resourceapi.ResourceClaim) error {
	response, err := k.dra.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
	if err != nil {
		return err
	}
	switch answer := response.Claims[string(c.UID)]; {
	case answer == nil:
		return errors.New("no answer for the claim")
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

func (k *kubelet) unprepare(ctx context.Context, c *resourceapi.ResourceClaim) error {
	response, err := k.dra.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
	if err != nil {
		return err
	}
	switch answer := response.Claims[string(c.UID)]; {
	case answer == nil:
		return errors.New("no answer for the claim")
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

func refTo(c *resourceapi.ResourceClaim) *drapb.Claim {
	return &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
}

// claimFor is the n-th claim as the scheduler leaves it, with one device.
func claimFor(n int, device string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("claim-%d", n), UID: types.UID(fmt.Sprintf("6f0c0ed8-30ab-4a4b-9a4b-%012d", n))},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: fmt.Sprintf("pod-%d", n), UID: "7f0c0ed8-30ab-4a4b-9a4b-000000000000"}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{
					Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(nodeName), Device: device,
				}},
			}},
		},
	}
}

// shareSize is the part of a GPU that a claim for a share has.
const shareSize = "20m"

// shareClaimFor is the n-th claim, with a share of a GPU.
func shareClaimFor(n int, gpuID string) *resourceapi.ResourceClaim {
	c := claimFor(n, gpuID+"-fraction-share")
	result := &c.Status.Allocation.Devices.Results[0]
	result.ShareID = ptr.To(types.UID(fmt.Sprintf("5f0c0ed8-30ab-4a4b-9a4b-%012d", n)))
	result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		names.CapacityFraction: resource.MustParse(shareSize),
		names.CapacityClients:  resource.MustParse("1"),
	}
	return c
}
