// Package history keeps how busy GPUs were in the last hour, of the nodes that somebody looks at.
//
// A node is read in the background when it is looked at first, then every 15 seconds until nobody
// has looked at it for five minutes. Each node is read by itself, so none waits for another. A
// plugin that does not answer leaves a gap.
//
// What is kept grows with the readers, and not with the cluster: up to 64 nodes, of each up to 32
// GPUs, of each GPU three series of up to 241 points. A node with eight GPUs takes up to 0.4 MB,
// 64 of them 25 MB. One more node takes the place of the one that was looked at longest ago, unless
// its page is open.
package history
