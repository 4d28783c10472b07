package models

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each instance type has GPUs of one model.
func TestInstanceTypes(t *testing.T) {
	table, names := loadInstanceTypes(), InstanceTypes()
	assert.IsIncreasing(t, names, "an instance type is there twice, or they are in no order")
	for _, row := range table.GPUs {
		assert.Contains(t, table.Sources, row.Source, row.Model)
		for name, count := range row.Count {
			inventory, err := LoadInventory(name)
			require.NoError(t, err, name)
			assert.Equal(t, name, inventory.Name)
			assert.Contains(t, names, name)
			assert.Len(t, inventory.Hardware(""), count, name)
			assert.NotContains(t, InventoryNames(), name)
		}
	}
	inventory, err := LoadInventory("p4d.24xlarge")
	require.NoError(t, err)
	assert.Equal(t, "A100-40GB", inventory.GPUs[7].Model.Key)
	assert.False(t, inventory.GPUs[7].MIGMode, "as a new machine has it")
}
