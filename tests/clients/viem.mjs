import { createPublicClient, createWalletClient, defineChain, http } from "viem";
import { ABI, serve } from "./driver.mjs";

const chain = defineChain({
  id: 31337,
  name: "dev",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [process.env.RPC_URL] } },
});
const reading = createPublicClient({ chain, transport: http(), pollingInterval: 100, cacheTime: 0 });
const writing = createWalletClient({ chain, transport: http() });

serve({
  accounts: () => writing.getAddresses(),
  send: ({ tx: { from, value, ...tx } }) =>
    writing.sendTransaction({ account: from, value: value == null ? undefined : BigInt(value), ...tx }),
  async wait({ hash }) {
    const receipt = await reading.waitForTransactionReceipt({ hash });
    return {
      hash: receipt.transactionHash,
      status: receipt.status === "success" ? 1 : 0,
      contract: receipt.contractAddress,
    };
  },
  deploy: ({ from, code }) => writing.deployContract({ account: from, abi: ABI, bytecode: code }),
  call: ({ contract }) => reading.readContract({ address: contract, abi: ABI, functionName: "answer" }),
});
