package amdgpu

import (
	"maps"
	"reflect"
)

// A plugin that starts has each GPU describe each of its modes. To make the
// files of the whole machine anew for each of these writes would take most of the
// start, so only those that follow the selector are.

// reselected are the GPUs whose selector is all that changed between two
// states; ok is false when more did.
func reselected(before, after *state) (gpus []int, ok bool) {
	if before == nil || len(before.GPUs) != len(after.GPUs) {
		return nil, false
	}
	same := after.clone()
	for i := range same.GPUs {
		if selected := before.GPUs[i].Selected; same.GPUs[i].Selected != selected {
			same.GPUs[i].Selected = selected
			gpus = append(gpus, i)
		}
	}
	return gpus, reflect.DeepEqual(before, same)
}

// reselect is a tree with other descriptions of modes. The tree itself stays as
// it is: others may be reading it.
func (v *view) reselect(old *tree, gpus []int) *tree {
	t := *old
	t.files = maps.Clone(old.files)
	for _, gpuIndex := range gpus {
		if dir := configDir(v.pci(gpuIndex)); t.files[dir] != nil {
			v.configFiles(&t, gpuIndex, dir)
		}
	}
	return &t
}
