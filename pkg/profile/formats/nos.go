package formats

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// NosKinds are the kinds of nos's objects. QuotaNote says what to use in place of them.
var NosKinds = []string{"ElasticQuota", "CompositeElasticQuota"}

// NosQuotaNote says what to use in place of the objects.
const NosQuotaNote = "there is no counterpart: a ResourceQuota limits a namespace, and Kueue has quotas that namespaces can borrow from each other"

// nosRules are the ways in which nos partitions GPUs: the values of the label.
var nosRules = map[string][]v1beta1.Rule{
	// Partitions come with the pods, and whole GPUs are not offered. nos ignores GPUs without MIG.
	"mig": {
		{GPUs: &v1beta1.GPUSelector{Vendor: nvidia, MIGSupport: v1beta1.MIGCapable}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDynamic, WholeGPUs: new(bool)}, Sharing: off()},
		{GPUs: &v1beta1.GPUSelector{Vendor: nvidia}, Unchanged: true, Sharing: off()},
	},
	// Slices of memory of whole GPUs, by MPS.
	"mps": {
		{GPUs: &v1beta1.GPUSelector{Vendor: nvidia}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDisabled}, Sharing: &v1beta1.Sharing{Strategy: v1beta1.MPS}},
	},
	// nos uses MIG on the GPUs in MIG mode, and MPS on the others. Here, each GPU does what pods need.
	"hybrid": {
		{GPUs: &v1beta1.GPUSelector{Vendor: nvidia}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGDynamic}, Sharing: &v1beta1.Sharing{Strategy: v1beta1.MPS}},
	},
}

// NosProfile converts a value of the label.
func NosProfile(value string) Profile {
	p := Profile{Name: "nos-" + value, Original: value}
	rules, ok := nosRules[value]
	if !ok {
		return p.Fail(fmt.Errorf("unknown nos partitioning mode %q: use mig, mps or hybrid", value))
	}
	p.Spec.Rules = slices.Clone(rules)
	if value == "hybrid" {
		p.Note("hybrid", "nos uses MIG on the GPUs in MIG mode, and MPS on the others; here, each GPU can do either, as pods need")
	}
	return p
}
