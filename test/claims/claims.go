// Package claims has GPUs, claims of them, and records of these for the tests of pkg/claim.
package claims

import (
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Node is the name of the node.
const Node = "node-a"

// GiB is 2^30 bytes.
const GiB = 1 << 30

// memorySlices is how many pieces a GPU of these tests has.
const memorySlices = 8

// sharing is how the GPUs are shared. Shares of whole GPUs have limits.
var sharing = gpu.Sharing{Strategy: gpu.TimeSlicing, Replicas: 10, MaxClients: 48}

// Address is the PCI address of the n-th GPU.
func Address(n int) string { return fmt.Sprintf("0000:%02x:00.0", n+1) }

// GPU is a GPU with 1g at each of seven places, 3g at two, and itself.
func GPU(n int) gpu.GPU {
	g := gpu.GPU{PCIAddress: Address(n), Vendor: gpu.NVIDIA, Index: n, Counters: gpu.Counters{}}
	for i := range memorySlices {
		g.Counters[fmt.Sprintf("memory-slice-%d", i)] = 1
	}
	for start := range memorySlices - 1 {
		g.Placements = append(g.Placements, MIG(n, "1g.10gb", start, 1))
	}
	g.Placements = append(g.Placements, MIG(n, "3g.40gb", 0, 4), MIG(n, "3g.40gb", 4, 4),
		gpu.Placement{GPU: Address(n), Type: gpu.TypeGPU, Consumes: maps.Clone(g.Counters)})
	return g
}

// MIG is a MIG partition of the n-th GPU, of so many pieces from one on.
func MIG(n int, profile string, start, size int) gpu.Placement {
	p := gpu.Placement{GPU: Address(n), Type: gpu.TypeMIG, Profile: profile, Start: start, Size: size, Consumes: gpu.Counters{}}
	for i := start; i < start+size; i++ {
		p.Consumes[fmt.Sprintf("memory-slice-%d", i)] = 1
	}
	return p
}

// Whole is all of the n-th GPU.
func Whole(n int) gpu.Placement {
	p, _ := new(GPU(n)).Placement(gpu.NameOf(Address(n)))
	return p
}

// PartitionAt is the partition at a placement, half made if it has no UUID.
func PartitionAt(p gpu.Placement, uuid string) gpu.Partition {
	return gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, UUID: uuid, Complete: uuid != "", ID: "GI 1"}
}

// share is a share device of a placement of 80 GiB.
func share(of gpu.Placement, by gpu.Basis) gpu.Placement {
	of.Memory = 80 * GiB
	s := sharing
	s.Limits = of.Type == gpu.TypeGPU
	return gpu.ShareOf(of, by, s)
}

// MemoryShare is the share device of the n-th GPU by memory.
func MemoryShare(n int) gpu.Placement { return share(Whole(n), gpu.ByMemory) }

// FractionShare is the share device of the n-th GPU by fraction.
func FractionShare(n int) gpu.Placement { return share(Whole(n), gpu.ByFraction) }

// MIGShare is the share device of the partition 3g.40gb of the n-th GPU.
func MIGShare(n int) gpu.Placement { return share(MIG(n, "3g.40gb", 0, 4), gpu.ByMemory) }

// amounts are what a result has of a share, in pairs of name and amount.
func amounts(pairs ...string) map[resourceapi.QualifiedName]resource.Quantity {
	of := map[resourceapi.QualifiedName]resource.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		of[resourceapi.QualifiedName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return of
}

// ShareResult is the scheduler's choice of a share. Its ShareID is made of the
// request's name.
func ShareResult(request string, p gpu.Placement, pairs ...string) resourceapi.DeviceRequestAllocationResult {
	r := ResultOf(request, p)
	r.ShareID = new(types.UID(fmt.Sprintf("%08x-share", request)))
	r.ConsumedCapacity = amounts(pairs...)
	return r
}

// ShareClaim is a claim for so much memory of one share device.
func ShareClaim(uid string, p gpu.Placement, memory string) *resourceapi.ResourceClaim {
	return Of(uid, ShareResult("r"+uid, p, "memory", memory))
}

// ResultOf is the scheduler's choice of a placement.
func ResultOf(request string, p gpu.Placement) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{
		Request: request, Driver: names.DriverName, Pool: names.PoolName(Node), Device: p.Name(),
	}
}

// Monitors is the claim of a monitor for some GPUs.
func Monitors(uid string, gpus ...int) *resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, i := range gpus {
		results = append(results, ResultOf("look", gpu.Monitor(Address(i))))
		results[len(results)-1].AdminAccess = new(true)
	}
	return Of(uid, results...)
}

// Of is an allocated claim that one pod uses.
func Of(uid string, results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-" + uid}},
		},
	}
}

// For is a claim for some placements, one request each.
func For(uid string, placements ...gpu.Placement) *resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, p := range placements {
		results = append(results, ResultOf("r-"+p.Name(), p))
	}
	return Of(uid, results...)
}

// Ref names the claim of a UID.
func Ref(uid string) ledger.ClaimRef {
	return ledger.ClaimRef{UID: types.UID(uid), Namespace: "team", Name: "claim-" + uid}
}

// Record is a claim's record for some placements, as Prepare writes it.
func Record(uid string, state ledger.State, placements ...gpu.Placement) ledger.Record {
	r := ledger.Record{Claim: Ref(uid), State: state}
	for _, p := range placements {
		d := ledger.Device{Request: "r-" + p.Name(), Pool: names.PoolName(Node), Name: p.Name(), Placement: p, Made: p.Type == gpu.TypeMIG, LoadID: "boot-1"}
		if state == ledger.Prepared {
			d.UUID = "MIG-" + uid
		}
		r.Devices = append(r.Devices, d)
	}
	return r
}

// Holding is a claim's record of one share.
func Holding(uid string, state ledger.State, p gpu.Placement, amount gpu.Amount) ledger.Record {
	r := Record(uid, state, p)
	d := &r.Devices[0]
	d.ShareID, d.Amount, d.Made = "share-"+r.Claim.UID, &amount, p.Base().Type == gpu.TypeMIG
	if state == ledger.Prepared {
		d.UUID = "MIG-1"
	}
	return r
}

// Memory is so much memory for one client.
func Memory(gibs int64) gpu.Amount { return gpu.Amount{Memory: gibs * GiB, Clients: 1} }

// GPUs are the first n GPUs.
func GPUs(n int) []gpu.GPU {
	var all []gpu.GPU
	for i := range n {
		all = append(all, GPU(i))
	}
	return all
}

// OfferShares adds the share devices to GPUs.
func OfferShares(gpus []gpu.GPU) {
	for n := range gpus {
		gpus[n].Placements = append(gpus[n].Placements, MemoryShare(n), FractionShare(n), MIGShare(n))
	}
}
