package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

func TestSelectedGPUs(t *testing.T) {
	for want, selector := range map[string]*v1beta1.GPUSelector{
		"":                        nil,
		"nvidia":                  {Vendor: "nvidia"},
		"with MIG":                {MIGSupport: v1beta1.MIGCapable},
		"nvidia without MIG":      {Vendor: "nvidia", MIGSupport: v1beta1.MIGIncapable},
		"H100 A100":               {ProductNames: []string{"H100", "A100"}},
		"0000:1b:00.0":            {PCIBusIDs: []string{"0000:1b:00.0"}},
		"0x233010DE":              {PCIIDs: []string{"0x233010DE"}},
		"index 0 index 3":         {Indexes: []int32{0, 3}},
		"2 × any":                 {Count: ptr.To[int32](2)},
		"2 × amd":                 {Vendor: "amd", Count: ptr.To[int32](2)},
		"1 × nvidia H100 index 0": {Vendor: "nvidia", ProductNames: []string{"H100"}, Indexes: []int32{0}, Count: ptr.To[int32](1)},
	} {
		assert.Equal(t, want, selected(selector))
	}
}

func TestWhatARuleSays(t *testing.T) {
	for want, r := range map[string]*v1beta1.Rule{
		"":                       {},
		"unchanged":              {Unchanged: true},
		"CPX NPS4":               {XCP: &v1beta1.XCP{ComputePartition: "CPX", MemoryPartition: "NPS4"}},
		"NPS1":                   {XCP: &v1beta1.XCP{MemoryPartition: "NPS1"}},
		"shared by 4 (MPS)":      {Sharing: &v1beta1.Sharing{Strategy: "MPS", Replicas: ptr.To[int32](4)}},
		"not shared":             {Sharing: &v1beta1.Sharing{WholeGPUs: ptr.To(false)}},
		"no MIG":                 {MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}},
		"MIG without partitions": {MIG: &v1beta1.MIG{Mode: v1beta1.MIGNoPartitions}},
		"partitions none":        {MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic}},
		"partitions 1g × 2 + 3g": {MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "1g", Count: ptr.To[int32](2)}, {Profile: "3g"}}}},
		"partitioned on demand into 1g 2g, not whole": {MIG: &v1beta1.MIG{Profiles: []string{"1g", "2g"}, WholeGPUs: ptr.To(false)}},
		"extended resource means GPUReplica":          {ExtendedResource: &v1beta1.ExtendedResource{Device: v1beta1.DeviceGPUReplica}},
		"extended resource means cpx":                 {ExtendedResource: &v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "cpx"}},
	} {
		assert.Equal(t, want, strings.Join(ruleSays(r), "; "))
	}
	all := &v1beta1.Rule{Unchanged: true, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}, XCP: &v1beta1.XCP{ComputePartition: "SPX"}, Sharing: &v1beta1.Sharing{}, ExtendedResource: &v1beta1.ExtendedResource{Device: v1beta1.DeviceGPU}}
	assert.Equal(t, []string{"unchanged", "no MIG", "SPX", "shared", "extended resource means GPU"}, ruleSays(all))
}

func TestWhatAProfileSays(t *testing.T) {
	for want, p := range map[string]Profile{
		"it does not exist any more":              {Missing: true, Rules: []v1beta1.Rule{{Unchanged: true}}},
		"nothing: GPUs are partitioned on demand": {},
		"amd: CPX NPS4; as it is": {Rules: []v1beta1.Rule{
			{GPUs: &v1beta1.GPUSelector{Vendor: "amd"}, XCP: &v1beta1.XCP{ComputePartition: "CPX", MemoryPartition: "NPS4"}}, {},
		}},
	} {
		assert.Equal(t, want, p.Says())
	}
}

func TestModes(t *testing.T) {
	for want, m := range map[string]v1beta1.GPUModes{
		"":         {},
		"MIG on":   {MIGMode: v1beta1.MIGModeEnabled},
		"MIG off":  {MIGMode: v1beta1.MIGModeDisabled},
		"CPX NPS1": {ComputePartition: "CPX", MemoryPartition: "NPS1"},
		"SPX":      {ComputePartition: "SPX"},
	} {
		assert.Equal(t, want, ModeText(m))
	}
}

func TestTaintAsText(t *testing.T) {
	assert.Equal(t, "k=v:NoSchedule", Taint{Key: "k", Value: "v", Effect: resourceapi.DeviceTaintEffectNoSchedule}.String())
	assert.Equal(t, "k:NoExecute", Taint{Key: "k", Effect: resourceapi.DeviceTaintEffectNoExecute}.String())
}

func TestWhoHolds(t *testing.T) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpu"}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "b"}, {Resource: "pods", Name: "a"}, {APIGroup: "other.example.com", Resource: "pods", Name: "d"}, {Resource: "podgroups", Name: "c"}}
	h := newHolder(c, resourceapi.DeviceRequestAllocationResult{AdminAccess: ptr.To(true), ConsumedCapacity: amountsOf("gpu.tranche.dev/memory", "1Gi")})
	assert.Equal(t, Holder{Namespace: "team", Claim: "gpu", Admin: true, Consumed: Amounts{"memory": resource.MustParse("1Gi")}, Pods: []string{"a", "b"}, Others: []Consumer{
		{Resource: "podgroups", Name: "c"}, {APIGroup: "other.example.com", Resource: "pods", Name: "d"},
	}}, h)
	assert.Equal(t, []string{"a", "b", "podgroups/c", "pods.other.example.com/d"}, h.Consumers())
	assert.Equal(t, "b", ConsumerOf(c.Status.ReservedFor[0]).String())
}

func TestBaseProfile(t *testing.T) {
	for label, want := range map[string]string{"1g.10gb": "", "1g.10gb+me": "1g.10gb", "1g.10gb-gfx": "1g.10gb", "1+me": "1", "+me": ""} {
		assert.Equal(t, want, BaseProfile(label), label)
	}
}

func TestAddHolders(t *testing.T) {
	a, other, elsewhere, hidden := Holder{Namespace: "a", Claim: "gpu"}, Holder{Namespace: "a", Claim: "other"}, Holder{Namespace: "b", Claim: "gpu"}, Holder{Hidden: true}
	assert.Equal(t, []Holder{a, elsewhere, other, hidden}, AddHolders([]Holder{a}, elsewhere, a, other, hidden, hidden, elsewhere))
}

func amountsOf(name resourceapi.QualifiedName, amount string) map[resourceapi.QualifiedName]resource.Quantity {
	return map[resourceapi.QualifiedName]resource.Quantity{name: resource.MustParse(amount)}
}

// Pieces that are drawn at one position are counted.
func TestPiecesAtOnePosition(t *testing.T) {
	holders := []Holder{{Claim: "c"}}
	p := &Pool{positions: 1}
	bar := p.bar([]Held{{Device: "a", Positions: []int{0}, Holders: holders}, {Device: "b", Positions: []int{0}, Holders: holders}})
	assert.Equal(t, []Segment{{Size: 1, State: Taken, Label: "2 pieces"}}, bar)
}

// A device that has nothing to share of what it is measured in shows none as left.
func TestNothingIsLeftOfADeviceWithoutCapacity(t *testing.T) {
	assert.Zero(t, (&Device{Device: &resourceapi.Device{}}).leftPart())
	d := &Device{Device: &resourceapi.Device{Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("1Gi")}}}}
	d.Holders = []Holder{{Consumed: Amounts{"memory": resource.MustParse("2Gi")}}}
	assert.Zero(t, d.leftPart(), "more is held than there is")
}
