import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** Word count in one JVM, every sentence tracked: arguments are a file of sentences, seconds, seconds before them, and pending. */
public class WordCount {
    private static final LongAdder ACKED = new LongAdder();
    private static final LongAdder FAILED = new LongAdder();
    private static final LongAdder COUNTED = new LongAdder();

    public static class Sentences extends BaseRichSpout {
        private final String[] sentences;
        private SpoutOutputCollector collector;
        private long number;

        Sentences(List<String> lines) {
            sentences = lines.toArray(new String[0]);
        }

        @Override
        public void open(Map<String, Object> config, TopologyContext context, SpoutOutputCollector output) {
            collector = output;
        }

        @Override
        public void nextTuple() {
            collector.emit(new Values(sentences[(int) (number % sentences.length)]), number++);
        }

        @Override
        public void ack(Object id) {
            ACKED.increment();
        }

        @Override
        public void fail(Object id) {
            FAILED.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("sentence"));
        }
    }

    public static class Split extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            for (String word : tuple.getString(0).split(" ")) {
                collector.emit(new Values(word));
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    public static class Count extends BaseBasicBolt {
        private final Map<String, Long> counts = new HashMap<>();

        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            counts.merge(tuple.getString(0), 1L, Long::sum);
            COUNTED.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    public static void main(String[] arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments[0]));
        long words = lines.stream().mapToLong(line -> line.split(" ").length).sum();
        double seconds = Double.parseDouble(arguments[1]);
        double warmUp = Double.parseDouble(arguments[2]);
        Config config = new Config();
        config.setNumWorkers(1);
        config.setNumAckers(1);
        config.setMaxSpoutPending(Integer.parseInt(arguments[3]));
        // Batches between threads, and statistics of few tuples: both make it faster.
        config.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, 100);
        config.put(Config.TOPOLOGY_TRANSFER_BATCH_SIZE, 100);
        config.put(Config.TOPOLOGY_STATS_SAMPLE_RATE, 0.0001);
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("spout", new Sentences(lines), 1);
        builder.setBolt("split", new Split(), 1).localOrShuffleGrouping("spout");
        builder.setBolt("count", new Count(), 1).fieldsGrouping("split", new Fields("word"));
        try (LocalCluster cluster = new LocalCluster();
                LocalCluster.LocalTopology topology = cluster.submitTopology("words", config, builder.createTopology())) {
            Thread.sleep((long) (warmUp * 1000));
            long acked = ACKED.sum();
            long counted = COUNTED.sum();
            long begun = System.nanoTime();
            Thread.sleep((long) (seconds * 1000));
            double took = (System.nanoTime() - begun) / 1e9;
            double each = (double) words / lines.size();
            System.out.printf(
                    "{\"words_per_second\": %.1f, \"counted_per_second\": %.1f, \"failed\": %d}%n",
                    (ACKED.sum() - acked) * each / took, (COUNTED.sum() - counted) / took, FAILED.sum());
            System.out.flush();
            // A cluster takes half a minute to close.
            Runtime.getRuntime().halt(0);
        }
    }
}
