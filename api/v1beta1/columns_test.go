package v1beta1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// row is what `kubectl get` shows of an object, wide: column=value.
func row(t *testing.T, crd string, object runtime.Object) (narrow, wide map[string]string) {
	t.Helper()
	table, err := tableconvertor.New(readCRD(t, crd).Spec.Versions[0].AdditionalPrinterColumns)
	require.NoError(t, err)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	got, err := table.ConvertToTable(t.Context(), &unstructured.Unstructured{Object: content}, &metav1.TableOptions{})
	require.NoError(t, err)
	require.Len(t, got.Rows, 1)
	narrow, wide = map[string]string{}, map[string]string{}
	for i, column := range got.ColumnDefinitions {
		value := ""
		if cell := got.Rows[0].Cells[i]; cell != nil {
			value = fmt.Sprint(cell)
		}
		to := narrow
		if column.Priority > 0 {
			to = wide
		}
		to[column.Name] = value
	}
	return narrow, wide
}

// What an administrator sees at a glance: also that nothing is held.
func TestColumnsOfAGPUNode(t *testing.T) {
	node := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-a", CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
		Annotations: map[string]string{names.AnnotationProfileFrom: "nvidia.com/mig.config=all-1g.10gb"},
	}}
	node.Status = v1beta1.GPUNodeStatus{
		Desired:         &v1beta1.ProfileSnapshot{ProfileName: "cpx-nps4", Source: v1beta1.FromSpec},
		Applied:         &v1beta1.ProfileSnapshot{ProfileName: "spx", Source: v1beta1.FromSpec},
		State:           v1beta1.Draining,
		StateChangeTime: &metav1.Time{Time: time.Now().Add(-9 * time.Hour)}, // the table has seconds of younger ones
		Switch:          &v1beta1.Switch{Attempt: 2},
		Node:            &v1beta1.NodeReport{GPUCount: 8},
		Conditions:      []metav1.Condition{{Type: names.ConditionReady, Message: "on the way"}},
	}
	narrow, wide := row(t, "gpunodes", node)
	assert.Equal(t, map[string]string{
		"Name": "node-a", "Profile": "cpx-nps4", "Applied": "spx", "State": "Draining", "Since": "9h", "GPUs": "8", "Free": "0", "Claims": "0", "Message": "on the way",
	}, narrow)
	assert.Equal(t, map[string]string{"Source": "Spec", "Set By": "nvidia.com/mig.config=all-1g.10gb", "Plan": "", "Deadline": "", "Attempt": "2", "Next Attempt": "", "Age": "60m"}, wide)

	// One of which nothing is known yet.
	narrow, _ = row(t, "gpunodes", &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}})
	assert.Empty(t, strings.Trim(narrow["Profile"]+narrow["State"]+narrow["Since"]+narrow["GPUs"]+narrow["Claims"], " "))
}

// A column has room for one value: of several rules it shows the first that says
// anything, and only the wide table has them all.
func TestColumnsOfAProfile(t *testing.T) {
	profile := &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: "mixed", Labels: map[string]string{names.LabelCreatedFrom: names.CreatedFromChart}}}
	profile.Spec = v1beta1.PartitionProfileSpec{
		Rules: []v1beta1.Rule{
			{MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: "3g"}, {Profile: "1g"}}}},
			{XCP: &v1beta1.XCP{ComputePartition: "CPX", MemoryPartition: "NPS4"}},
		},
		Switch: &v1beta1.SwitchPolicy{AfterDeadline: v1beta1.Force, Reboot: v1beta1.RebootIfRequired},
	}
	narrow, wide := row(t, "partitionprofiles", profile)
	delete(narrow, "Age")
	assert.Equal(t, map[string]string{
		"Name": "mixed", "MIG": "Static", "Compute": "CPX", "Memory": "NPS4", "Strategy": "", "Replicas": "",
	}, narrow)
	assert.JSONEq(t, `[{"mig":{"mode":"Static","partitions":[{"profile":"3g"},{"profile":"1g"}]}},{"xcp":{"computePartition":"CPX","memoryPartition":"NPS4"}}]`, wide["Rules"])
	delete(wide, "Rules")
	assert.Equal(t, map[string]string{"After Deadline": "Force", "Reboot": "IfRequired", "Created From": "Chart"}, wide)
}
