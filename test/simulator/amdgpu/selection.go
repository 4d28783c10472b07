package amdgpu

import (
	"maps"
	"reflect"
)

// A plugin that starts selects each mode of each GPU to read its description. Writing the files of
// the whole machine for each of these would take most of the start, so only those that follow
// the selector are written.

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
