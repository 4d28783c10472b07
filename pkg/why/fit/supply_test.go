package fit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// The text about a node says what is free, and what the others are.
func TestSupplyText(t *testing.T) {
	for want, s := range map[string]supply{
		"2 of 4 devices free: 2 taken":                               {Choice: demand.Choice{Count: 3}, places: 4, taken: 2, free: 2, most: 4},
		"2 of 4 devices free: 1 taken, 1 tainted":                    {Choice: demand.Choice{Count: 1}, places: 4, taken: 1, tainted: 1, free: 2, most: 4},
		"it asks for 5 devices at once, and the node has 4 in total": {Choice: demand.Choice{Count: 5}, places: 4, free: 4, most: 4},
	} {
		assert.Equal(t, want, (&Model{}).supplyText(&corev1.Node{}, &s, s.verdict(false)))
	}
}

// Of several limits, the text has the one that lets most through.
func TestLargestLimit(t *testing.T) {
	withMemory := func(q string) *cluster.Device {
		return &cluster.Device{Device: &resourceapi.Device{Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(q)}}}}
	}
	for _, order := range [][]string{{"24Gi", "80Gi", "40Gi"}, {"80Gi", "24Gi"}, {"24Gi", "80Gi"}} {
		s := supply{Choice: demand.Choice{Amounts: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("200Gi")}}}
		for _, q := range order {
			s.addShare(withMemory(q))
		}
		assert.Equal(t, "it asks for 200Gi of memory, and a device has 80Gi of memory for all its shares", s.limit.text, "%v", order)
	}
}

func TestNamesOf(t *testing.T) {
	holders := []cluster.Holder{{Namespace: "b", Pods: []string{"z"}}, {Namespace: "a", Pods: []string{"y"}}, {Namespace: "a", Pods: []string{"x"}}, {Namespace: "a", Claim: "c"}}
	assert.Equal(t, []string{"a: claim c without a pod, x, y", "b: z"}, NamesOf(holders))
	for i, want := range [][]string{{"c-0: p"}, {"c-0: p", "c-1: p"}, {"c-0: p", "c-1: p", "1 more namespace"}, {"c-0: p", "c-1: p", "2 more namespaces"}} {
		holders = append(holders, cluster.Holder{Namespace: fmt.Sprint("c-", i), Pods: []string{"p"}})
		assert.Equal(t, want, NamesOf(holders)[2:])
	}
}

func TestTaintTexts(t *testing.T) {
	assert.Equal(t, []string{"a:NoSchedule", "b=c:NoExecute (DeviceTaintRule one, two)"}, TaintTexts([]cluster.Taint{
		{Key: "a", Effect: resourceapi.DeviceTaintEffectNoSchedule}, {Key: "b", Value: "c", Effect: resourceapi.DeviceTaintEffectNoExecute, Rules: []string{"one", "two"}},
	}))
}
