package amdgpu

import (
	"maps"
	"reflect"
)

// A plugin that starts has each card describe each of its modes. To make the
// files of the whole machine anew for each of these writes would take most of the
// start, so only those that follow the selector are.

// reselected are the cards whose selector is all that changed between two
// states; ok is false when more did.
func reselected(before, after *state) (cards []int, ok bool) {
	if before == nil || len(before.Cards) != len(after.Cards) {
		return nil, false
	}
	same := after.clone()
	for i := range same.Cards {
		if selected := before.Cards[i].Selected; same.Cards[i].Selected != selected {
			same.Cards[i].Selected = selected
			cards = append(cards, i)
		}
	}
	return cards, reflect.DeepEqual(before, same)
}

// reselect is a tree with other descriptions of modes. The tree itself stays as
// it is: others may be reading it.
func (v *view) reselect(old *tree, cards []int) *tree {
	t := *old
	t.files = maps.Clone(old.files)
	for _, card := range cards {
		if dir := configDir(v.pci(card)); t.files[dir] != nil {
			v.configFiles(&t, card, dir)
		}
	}
	return &t
}
