// Package hardware is the contract between Tranche and the vendors of GPUs. To
// support another vendor, implement the interfaces of this package in a folder
// below it, as nvidia and amd do, and add the vendor to the machine of
// cmd/tranche-kubelet-plugin/plugin:
//
//   - vendor.go: [Vendor] names the vendor, opens its driver and recognises what
//     other software on the node does with its GPUs; owners.go has what that takes.
//   - driver.go: [Driver] is what drivers do, [Basic] what those answer whose GPUs
//     cannot do something.
//   - gate.go: [Gate] admits one task at a time to a GPU, and returns to the caller when
//     a call hangs. All calls of all vendors pass through it.
//   - machine.go: [Machine] is what the plugin runs on: the vendors and what is
//     asked of the machine itself, real or simulated.
package hardware
