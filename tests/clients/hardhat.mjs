import hre from "hardhat";
import { ABI, serve } from "./driver.mjs";

const { ethers } = await (hre.network.create ?? hre.network.connect)("nonchalant");
const sent = new Map();

async function outcome(waiting) {
  let receipt;
  try {
    receipt = await waiting;
  } catch (error) {
    if (error.receipt == null) throw error;
    receipt = error.receipt;
  }
  return { hash: receipt.hash, status: receipt.status, contract: receipt.contractAddress };
}

serve({
  async accounts() {
    return (await ethers.getSigners()).map((signer) => signer.address);
  },
  async send({ tx }) {
    const response = await (await ethers.getSigner(tx.from)).sendTransaction(tx);
    sent.set(response.hash, response);
    return response.hash;
  },
  wait: ({ hash }) => outcome(sent.get(hash).wait()),
  async deploy({ from, code }) {
    const contract = await new ethers.ContractFactory(ABI, code, await ethers.getSigner(from)).deploy();
    sent.set(contract.deploymentTransaction().hash, contract.deploymentTransaction());
    return contract.deploymentTransaction().hash;
  },
  call: async ({ contract }) => new ethers.Contract(contract, ABI, ethers.provider).answer(),
});
